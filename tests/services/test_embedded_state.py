"""The state of a run directory: while a lab works on it, after that, and if it cannot be read."""

import sqlite3
from contextlib import contextmanager

import pytest

from modnorm.client.embedded import embedded_client, read_unfinished
from modnorm.client.experiments import ExperimentState
from modnorm.client.run_directory import RunDirectory, hold, state_directory
from modnorm.client.settings import ClientSettings
from modnorm.services.embedded_state import DATABASE
from verification.fuzz.stored import small_spec

pytestmark = pytest.mark.usefixtures("idle_workers")


@contextmanager
def lab(home):
    """A lab with the run `home/first`, which is selecting."""
    settings = ClientSettings(cache_dir=home.parent / "cache")
    with hold(home), embedded_client(home, settings) as client:
        experiment = client.submit(small_spec(name="first"), "first")
        states = (event.state for event in client.watch(experiment.id))
        assert ExperimentState.SELECTING in states
        RunDirectory(home / "first").reserve(small_spec(name="first"))
        yield client


def test_a_run_tells_its_phase_and_its_jobs(tmp_path):
    with lab(tmp_path / "home"):
        found = read_unfinished(tmp_path / "home" / "first")
        RunDirectory(tmp_path / "home").reserve(small_spec(name="first"))
        assert read_unfinished(tmp_path / "home") == found
    assert (found.state, found.live, found.error) == ("selecting", True, "")
    assert found.progress is not None
    assert (found.progress.unit, found.progress.done, found.progress.total) == ("jobs", 0, 4)


def test_each_run_of_a_lab_has_its_own_state(tmp_path):
    home = tmp_path / "home"
    with lab(home) as client:
        RunDirectory(home / "second").reserve(small_spec(name="second"))
        assert read_unfinished(home / "second").state == "not finished"
        client.cancel(client.submit(small_spec(name="second"), "second").id)
        found = read_unfinished(home / "second")
        assert (found.state, found.live, found.progress) == ("cancelled", False, None)
        assert read_unfinished(home / "first").state == "selecting"


def test_a_run_whose_process_ended_is_interrupted(tmp_path):
    home = tmp_path / "home"
    with lab(home):
        pass
    found = read_unfinished(home / "first")
    assert (found.state, found.live) == ("interrupted while selecting", True)
    assert "The command that started it resumes it" in found.error
    assert found.progress is not None
    assert found.progress.total == 4
    assert found.progress.remaining is None


def test_a_state_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    home = tmp_path / "home"
    with lab(home):
        pass
    with sqlite3.connect(state_directory(home) / DATABASE) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0'")
    found = read_unfinished(home / "first")
    assert (found.state, found.progress) == ("not finished", None)
    assert "The progress cannot be read: " in found.error
    assert "the database has schema 0, which this version does not know" in found.error
    monkeypatch.setattr("modnorm.client.embedded.entry_points", lambda group: [])
    assert "[services]" in read_unfinished(home / "first").error


def test_the_state_is_only_read(tmp_path):
    home = tmp_path / "home"
    with lab(home):
        files = state_directory(home)
        before = {path.name: path.read_bytes() for path in files.glob(f"{DATABASE}*")}
        assert read_unfinished(home / "first").state == "selecting"
        after = {path.name: path.read_bytes() for path in files.glob(f"{DATABASE}*")}
    del before[f"{DATABASE}-shm"], after[f"{DATABASE}-shm"]  # holds the locks of readers
    assert after == before
