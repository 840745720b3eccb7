"""Removal of old experiments, with everything of theirs and nothing else."""

import json
import logging
import threading

import pytest
from sqlmodel import SQLModel, select

from modnorm.services.aggregator import remove_old
from modnorm.services.aggregator.remove_old import (
    ended_before,
    remove_ended,
    remove_unused_artifacts,
)
from modnorm.services.aggregator.storage.tables import ExperimentState, Job, Split
from tests.services.aggregator.world import on_both_databases
from verification.labs.waiting import HANG_SECONDS

pytestmark = [pytest.mark.usefixtures("own_logging"), on_both_databases]
DAY = 86_400.0


@pytest.fixture
def own_logging():
    """Undo what a program configures: its handler writes to a stream that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def rows(database):
    with database.read() as session:
        return {
            (table.name, tuple(row))
            for table in SQLModel.metadata.sorted_tables
            for row in session.execute(select(*table.columns))
        }


def remove(database, limit):
    """Remove as the program does; return the ids."""
    with database.read() as session:
        old = [one.id for one in ended_before(session, limit)]
    for experiment_id in old:
        with database.write() as session:
            remove_ended(session, experiment_id, limit)
    with database.write() as session:
        remove_unused_artifacts(session)
    return old


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
    world.report(claim)
    world.work(running)
    assert world.state(running) == "SUCCEEDED"


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


@pytest.mark.usefixtures("database_url")
def test_a_database_that_does_not_exist_is_not_made(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("MODNORM_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        remove_old.main(["--days", "90"])
    event = json.loads(capsys.readouterr().err.splitlines()[-1])["event"]
    assert "MODNORM_DATABASE_URL" in event
    assert str(tmp_path / "modnorm.db") in event
    assert not (tmp_path / "modnorm.db").exists()


def test_removal_waits_for_a_transaction_that_copies_results(world):
    old = world.select()
    world.work(old)
    removal = threading.Thread(target=remove, args=(world.database, world.now + DAY))
    with world.database.write() as session:
        session.add(Job(id="other", experiment_id=old, candidate=-1, split=Split.DEVELOPMENT))
        session.flush()
        removal.start()
        removal.join(0.3)
        jobs = session.exec(select(Job.id).where(Job.experiment_id == old)).all()
        assert len(jobs) > 1
        session.rollback()
    removal.join(HANG_SECONDS)
    assert not any(old in row for _, row in rows(world.database))
