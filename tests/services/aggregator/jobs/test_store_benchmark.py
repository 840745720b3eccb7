"""The benchmark of the stores does all the work that it times."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.control_plane.stores import _Bench
from services.aggregator.jobs.job_store import JobStore
from services.aggregator.storage.database import Database


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[_Bench]:
    database = Database(f"sqlite:///{tmp_path / 'lab.db'}")
    database.migrate()
    yield _Bench(database, 60, argparse.Namespace(batch=50, answers=1))
    database.close()


def test_every_job_is_claimed_and_reported(
    bench: _Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.run()
    assert "claim and report at the start" in capsys.readouterr().out


def test_a_job_that_is_not_claimed_ends_the_benchmark(
    bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobStore, "claim_all", lambda _, requests: [None] * len(requests))
    with pytest.raises(SystemExit, match="not claimed"):
        bench.run()
