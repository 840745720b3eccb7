"""The engine thread: the one that uses the engine."""

import contextvars
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from modnorm.services.evaluator.worker import EngineThread
from modnorm.v1 import evaluation_pb2 as messages

if TYPE_CHECKING:
    from modnorm.services.evaluator.job_runner import JobRunner
    from modnorm.services.evaluator.lease import CandidateLease

SECONDS = 60.0
NAME = contextvars.ContextVar("NAME", default="")


class Jobs:
    """Notes each job that begins; its name says how it fails."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.passed_on: list[str] = []
        self.threads: set[int] = set()
        self.all_finished = threading.Event()
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.continues = threading.Event()

    def begin(self, job: "CandidateLease") -> None:
        job_id = job.job.lease.job_id
        self.threads.add(threading.get_ident())
        self.done.append(job_id + NAME.get())
        if job_id == "broken":
            raise ValueError(job_id)

    def warm(self, message: messages.Job) -> None:
        self.continues.set()
        assert self.may_continue.wait(SECONDS)

    def pass_on(self, job: "CandidateLease", reason: str) -> None:
        self.passed_on.append(job.job.lease.job_id)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.done.append("closed")
        self.all_finished.set()


def job(job_id: str) -> "CandidateLease":
    message = messages.Job(lease=messages.Lease(job_id=job_id))
    return cast("CandidateLease", SimpleNamespace(job=message))


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def engine(jobs, shutdown):
    engine = EngineThread(cast("JobRunner", jobs), shutdown)
    engine.start()
    yield engine
    engine.close()


def test_one_thread_begins_and_closes(engine, jobs):
    assert engine.begin(job("a"))
    assert engine.begin(job("b"))
    engine.close()
    assert jobs.done == ["a", "b", "closed"]
    assert len(jobs.threads) == 1
    assert threading.get_ident() not in jobs.threads


def test_a_job_begins_in_the_context_of_its_caller(engine, jobs):
    token = NAME.set("!")
    engine.begin(job("a"))
    NAME.reset(token)
    assert jobs.done[0] == "a!"


def test_a_failure_is_raised_to_the_caller_and_the_next_job_begins(engine, jobs):
    with pytest.raises(ValueError, match="broken"):
        engine.begin(job("broken"))
    assert engine.begin(job("a"))


def test_no_job_begins_once_the_worker_stops(engine, jobs, shutdown):
    shutdown.request()
    assert not engine.begin(job("a"))
    assert not jobs.done
    assert jobs.passed_on == ["a"]


def test_a_stop_does_not_wait_for_a_model_that_is_loaded_early(engine, jobs):
    jobs.may_continue.clear()
    engine.warm(messages.Job())
    assert jobs.continues.wait(SECONDS)
    engine.close()
    assert not jobs.done
    jobs.may_continue.set()
    assert jobs.all_finished.wait(SECONDS)
    assert jobs.done == ["closed"]
