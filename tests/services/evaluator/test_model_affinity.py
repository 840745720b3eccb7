"""Order of the jobs of two engines, whose settings differ instead of their models."""

from collections.abc import Callable

import pytest

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, load_engine
from modnorm.errors import NotFoundError
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.model_cache import Loading
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import run_job

AddJob = Callable[..., messages.Job]
MakeRunner = Callable[..., JobRunner]


@pytest.fixture
def loads() -> list[int]:
    """Settings of the engines that were loaded, in order."""
    return []


@pytest.fixture
def make_patient(make_runner: MakeRunner, loads: list[int]) -> Callable[[float], JobRunner]:
    def load(name: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
        loads.append(settings.max_num_seqs or 256)
        return load_engine(name, checkpoint, settings)

    def make(patience: float) -> JobRunner:
        return make_runner(Loading(roots=(), load=load), patience=patience)

    return make


@pytest.fixture
def offer(aggregator, add_job: AddJob) -> Callable[..., None]:
    def offer(*names: str) -> None:
        """Add jobs; names that begin with b need another engine."""
        for name in names:
            add_job(name, max_tokens=4)
            if name.startswith("b"):
                aggregator.jobs[name].engine.max_num_seqs = 7

    return offer


def test_jobs_of_the_loaded_model_go_first_then_the_model_changes(
    make_patient, offer, loads: list[int], aggregator
) -> None:
    runner = make_patient(600.0)
    offer("a1", "b1", "a2", "a3")
    for hint in ("a1", "b1"):
        run_job(runner, hint)
    assert set(aggregator.reports) == {"a1", "a2"} or set(aggregator.reports) == {"a1", "a3"}
    assert aggregator.failures["b1"].kind == messages.FAILURE_KIND_RELEASED
    assert len(loads) == 1
    offer("b1")  # published again, as released jobs are
    run_job(runner, "b1")
    assert set(aggregator.reports) == {"a1", "a2", "a3"}
    offer("b1")
    run_job(runner, "b1")
    assert set(aggregator.reports) == {"a1", "a2", "a3", "b1"}
    assert loads == [256, 7]
    assert runner._metrics._jobs.labels("passed_on")._value.get() == 2


def test_a_worker_out_of_patience_changes_its_model_and_has_new_patience(
    make_patient, offer, loads: list[int], aggregator, monkeypatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("modnorm.services.evaluator.model_affinity.time.monotonic", lambda: now[0])
    runner = make_patient(100.0)
    offer("a1", "a2", "a3", "a4", "b1")
    run_job(runner, "a1")
    run_job(runner, "b1")
    now[0] += 60
    offer("b1", "b2")
    run_job(runner, "b1")
    assert len(aggregator.reports) == 3
    now[0] += 60
    offer("b1")
    run_job(runner, "b1")
    assert loads == [256, 7]
    left = next(iter(set(aggregator.jobs) - {"b2"}))
    run_job(runner, left)
    assert {"b1", "b2"} <= set(aggregator.reports)
    assert loads == [256, 7]
    assert aggregator.failures[left].kind == messages.FAILURE_KIND_RELEASED


def test_a_failed_search_for_jobs_keeps_the_claimed_one(
    make_patient, offer, loads: list[int], aggregator
) -> None:
    runner = make_patient(600.0)
    offer("a1", "a2", "b1")
    run_job(runner, "a1")
    aggregator.errors["FindJobs"] = [NotFoundError("no such rpc")]
    run_job(runner, "b1")
    assert set(aggregator.reports) == {"a1", "b1"}
    assert loads == [256, 7]
