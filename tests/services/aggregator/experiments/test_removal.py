"""Removal of old experiments, with everything of theirs and nothing else."""

import json

import pytest
from sqlmodel import col, select

from modnorm.services.aggregator import remove_old
from modnorm.services.aggregator.storage.tables import Artifact, Experiment, ExperimentState
from tests.services.aggregator.experiments.removing import DAY, remove, rows

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


def test_an_artifact_that_another_experiment_names_stays(world):
    old, kept = world.select("old"), world.select("kept")
    world.work(old)
    remove(world.database, world.now + DAY)
    with world.database.read() as session:
        named = session.get_one(Experiment, kept)
        digests = {named.selection_digest, named.heldout_digest, named.scale_map_digest}
        found = session.exec(select(Artifact.digest).where(col(Artifact.digest).in_(digests)))
        assert set(found.all()) == digests
