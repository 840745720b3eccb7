"""Removal of old experiments, with everything of theirs and nothing else."""

import json
import os
import shutil
import subprocess
import time
from signal import SIGKILL

import pytest
from sqlmodel import col, select

from modnorm.errors import NotFoundError
from modnorm.services.aggregator import remove_old
from modnorm.services.aggregator.experiments.removal import (
    ended_before,
    remove_ended,
    remove_unused_artifacts,
    remove_unused_students,
)
from modnorm.services.aggregator.storage.states import ExperimentState
from modnorm.services.aggregator.storage.tables import Artifact, Experiment
from modnorm.services.common.students import ABANDONED_SECONDS
from tests.services.aggregator.experiments.removing import DAY, remove, rows
from verification.labs.waiting import HANG_SECONDS

pytestmark = pytest.mark.usefixtures("own_logging")


def test_an_old_experiment_is_removed_and_nothing_else(world):
    running = world.select("running")
    claim = world.claim_next(running)
    before = rows(world.database)
    old = world.select("old", size=6)
    world.work(old)
    assert world.state(old) == "SUCCEEDED"
    assert remove(world.database, world.now) == []
    world.now += DAY
    assert remove(world.database, world.now - DAY / 2) == [old]
    assert rows(world.database) == before
    world.jobs.report(world.report_of(claim))
    world.work(running)
    assert world.state(running) == "SUCCEEDED"


def test_recent_and_open_experiments_stay(world):
    old, recent, running = (world.select(name) for name in ("old", "recent", "running"))
    world.work(old)
    world.now += DAY
    world.work(recent)
    before = rows(world.database)
    assert remove(world.database, world.now - DAY / 2) == [old]
    left = rows(world.database)
    assert left < before
    assert not any(old in row for _, row in left)
    assert {world.state(recent), world.state(running)} == {"SUCCEEDED", "SELECTING"}
    assert remove(world.database, world.now + DAY) == [recent]


def test_an_experiment_that_runs_again_is_not_removed(world):
    created = world.select()
    with world.database.write() as session:
        assert not remove_ended(session, created, world.now + DAY)
    assert world.state(created) == "SELECTING"


def test_a_distillation_is_removed_with_its_parts_and_students(lab):
    world = lab.world
    before = rows(world.database)
    parent = lab.create()
    lab.run(parent)
    digest, students = lab.get(parent).rounds[1].part.student_digest, world.students
    limit = world.now + DAY
    with world.database.write() as session:
        assert [one.id for one in ended_before(session, limit)] == [parent]
        assert remove_ended(session, parent, limit)
        remove_unused_artifacts(session)
    assert students.path(digest) is not None
    assert remove_unused_students(world.database, students) == 2
    assert rows(world.database) == before
    assert files(students) == []
    assert remove_unused_students(world.database, students) == 0


def files(students):
    """Return what a directory of students holds of them, removed ones too."""
    removed = students.root / "removed"
    return [path for path in (*students.root.iterdir(), *removed.glob("*")) if path != removed]


KILLED = """
import os, signal, sys
from modnorm.services.aggregator import remove_old
from modnorm.services.common.students import Students

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def die_after(method):
    return lambda *given: die(method(*given))

match sys.argv[1]:
    case "after the rows":
        remove_old.remove_unused_artifacts = die
    case "before the files":
        remove_old.remove_unused_students = die
    case "before the commit":
        Students.remove = die_after(Students.remove)
    case "before the deletion":
        Students.clean_up = die
remove_old.main(["--days", "90"])
"""


@pytest.mark.parametrize(
    "moment", ["after the rows", "before the files", "before the commit", "before the deletion"]
)
def test_a_killed_removal_is_completed_by_the_next(
    lab, database_url, python_code, monkeypatch, moment
):
    world = lab.world
    parent = lab.create()
    lab.run(parent)  # it ends in 1970
    monkeypatch.setenv("MODNORM_DATABASE_URL", database_url)
    monkeypatch.setenv("MODNORM_STUDENT_DIR", str(world.students.root))
    killed = [*python_code, KILLED, moment]
    ended = subprocess.run(killed, env=os.environ, check=False, timeout=HANG_SECONDS)
    assert ended.returncode == -SIGKILL
    with pytest.raises(NotFoundError):
        world.state(parent)
    assert files(world.students)
    remove_old.main(["--days", "90"])
    assert files(world.students) == []
    assert rows(world.database) == set()


def test_an_obsolete_student_that_is_trained_again_stays(lab):
    world = lab.world
    first = lab.create(rounds=1)
    lab.run(first)
    (digest,) = [each.name for each in files(world.students)]
    with world.database.write() as session:
        assert remove_ended(session, first, world.now + DAY)
    second = lab.create("again", rounds=1)
    lab.run(second)
    assert lab.get(second).rounds[1].part.student_digest == digest
    before = rows(world.database)
    assert remove_unused_students(world.database, world.students) == 0
    assert world.students.path(digest) is not None
    assert before - rows(world.database) == {("obsolete_students", (digest,))}


def test_an_old_student_that_nothing_names_is_removed(lab):
    world = lab.world
    parent = lab.create(rounds=1)
    lab.run(parent)
    (named,) = files(world.students)
    unnamed, recent = (named.with_name(letter * 64) for letter in "ab")
    for student in (unnamed, recent):
        shutil.copytree(named, student)
    long_ago = time.time() - ABANDONED_SECONDS - 60
    for student in (named, unnamed):
        os.utime(student, (long_ago, long_ago))
    assert remove_unused_students(world.database, world.students) == 1
    assert set(files(world.students)) == {named, recent}


@pytest.fixture
def old_experiment(world, database_url, monkeypatch):
    monkeypatch.setenv("MODNORM_DATABASE_URL", database_url)
    created = world.select()
    world.work(created)  # it ends in 1970
    return created


def test_the_program_removes_what_it_listed(old_experiment, world, capsys):
    remove_old.main(["--days", "90", "--dry-run"])
    listed = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["experiment"] for line in listed if "experiment" in line] == [old_experiment]
    assert (listed[-1]["event"], listed[-1]["experiments"]) == ("would be removed", 1)
    assert world.state(old_experiment) == ExperimentState.SUCCEEDED
    remove_old.main(["--days", "90"])
    assert f'"experiment": "{old_experiment}"' in capsys.readouterr().err
    assert rows(world.database) == set()
    remove_old.main(["--days", "90"])
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["experiments"] == 0


@pytest.mark.parametrize("days", ["-1", "nan", "soon"])
def test_days_that_are_no_age_are_refused(old_experiment, world, days):
    with pytest.raises(SystemExit):
        remove_old.main(["--days", days])
    assert world.state(old_experiment) == ExperimentState.SUCCEEDED


def test_an_artifact_that_another_experiment_names_stays(world):
    old, kept = world.select("old"), world.select("kept")
    world.work(old)
    remove(world.database, world.now + DAY)
    with world.database.read() as session:
        named = session.get_one(Experiment, kept)
        digests = {named.selection_digest, named.heldout_digest, named.scale_map_digest}
        found = session.exec(select(Artifact.digest).where(col(Artifact.digest).in_(digests)))
        assert set(found.all()) == digests
