"""Jobs that a worker cannot do: others run, and the unfit ones are tried again after a while."""

import time
from collections.abc import Callable

import pytest

from modnorm.services.evaluator import job_runner
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import run_job


def test_jobs_of_an_experiment_that_a_worker_is_unfit_for_are_left_to_others(
    runner: JobRunner,
    aggregator,
    add_job: Callable[..., messages.Job],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_runner, "UNFIT_SECONDS", 1_000.0)
    for number in range(3):
        add_job(f"program{number}", task="mbpp", experiment_id=f"of programs {number % 2}")
    add_job("good")
    for _ in range(4):
        run_job(runner, "the next")
    assert set(aggregator.reports) == {"good"}
    assert [failure.unfit for failure in aggregator.failures.values()] == [True] * 2
    assert aggregator.unfit[-1] == ("of programs 0", "of programs 1")
    assert runner.pause == 0.0
    runner._unfit = dict.fromkeys(runner._unfit, time.monotonic())
    claimed = runner.claim()
    assert claimed is not None
    runner.pass_on(claimed, "it is tried again")
