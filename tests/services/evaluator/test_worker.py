"""The worker in a thread, with the in-memory broker as in embedded runs, and with Redis."""

import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from modnorm.errors import ForbiddenError, UnauthenticatedError
from modnorm.services.common.queue import announce_work, make_celery
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.lease import CandidateLease
from modnorm.services.evaluator.worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import run_job
from verification.labs import servers
from verification.labs.waiting import HANG_SECONDS, wait_until


@pytest.fixture
def settings(target):
    return EvaluatorSettings(
        bind_address="127.0.0.1:0",
        broker_url=f"memory://{uuid.uuid4().hex}",
        aggregator_target=target,
        heartbeat_seconds=0.1,
        stop_grace=0.0,
        worker_name="w",
        torch_threads=1,
    )


@contextmanager
def running(settings: EvaluatorSettings, **changes: object) -> Iterator[Worker]:
    """Run a worker in a thread, which ends when the worker stops."""
    worker = Worker(settings.model_copy(update=changes))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert not worker.serving


def test_jobs_are_claimed_until_none_is_left(settings, aggregator, add_job):
    for job_id in "ab":
        add_job(job_id)
    with running(settings) as worker:
        for job_id in "ab":
            aggregator.wait_for(job_id)
        assert worker.serving
    assert {report.worker for report in aggregator.reports.values()} == {"w"}
    assert {report.environment["threads"] for report in aggregator.reports.values()} == {"1"}


@pytest.fixture
def patient(settings):
    return settings.model_copy(update={"stall_seconds": 1200.0})


def test_a_lease_is_kept_while_a_model_may_still_load(patient, aggregator, add_job, monkeypatch):
    kept: list[bool] = []
    is_wanted = CandidateLease.is_wanted

    def late(lease):
        lease._last_progress = time.monotonic() - 3 * patient.stall_seconds
        kept.append(is_wanted(lease))
        return kept[-1]

    monkeypatch.setattr(CandidateLease, "is_wanted", late)
    worker = Worker(patient)
    run_job(worker._runner, add_job())
    worker._runner.close()
    assert kept
    assert all(kept)


def test_an_idle_worker_asks_at_once_when_told_and_else_at_each_heartbeat_interval(
    settings, aggregator, add_job
):
    for seconds, told in ((HANG_SECONDS, True), (0.1, False)):
        with running(settings, heartbeat_seconds=seconds) as worker:
            wait_until(partial(getattr, worker, "serving"), "the worker is connected")
            job_id = f"told {told}"
            add_job(job_id)
            while told and job_id in aggregator.jobs:
                announce_work(make_celery(settings.broker_url))
                threading.Event().wait(0.02)
            aggregator.wait_for(job_id)


@pytest.mark.parametrize("refusal", [ForbiddenError, UnauthenticatedError])
def test_a_worker_whose_token_is_refused_is_not_serving(settings, aggregator, refusal):
    aggregator.errors["ClaimJob"] = errors = [refusal("this token may not work")] * 1_000
    with running(settings) as worker:
        wait_until(lambda: worker._listener.is_connected, "the connection")
        wait_until(lambda: aggregator.calls["ClaimJob"], "a claim")
        wait_until(lambda: not worker.serving, "the refusal")
        errors.clear()  # the token is replaced
        wait_until(lambda: worker.serving, "a claim that is answered")


def test_a_stop_releases_the_current_job(settings, aggregator, add_job):
    add_job("long", max_tokens=1500, radius=0.1)
    with running(settings):
        wait_until(lambda: aggregator.calls["FetchArtifact"], "the job has begun", pause=0.02)
    assert aggregator.failures["long"].kind == messages.FAILURE_KIND_RELEASED


def test_a_worker_that_never_ran_can_be_stopped(settings):
    worker = Worker(settings)
    assert not worker.serving
    worker.stop()


def test_a_worker_whose_first_job_cannot_be_read_leaves_no_engine_thread(settings, tmp_path):
    worker = Worker(settings.model_copy(update={"first_job": tmp_path / "none"}))
    with pytest.raises(FileNotFoundError):
        worker.run()
    assert not worker._engine._thread.is_alive()


def test_a_worker_works_without_its_broker_and_reconnects(settings, aggregator, add_job):
    with servers.broker() as broker, running(settings, broker_url=broker.url) as worker:
        wait_until(lambda: worker.serving, "the connection")
        broker.end(signal.SIGKILL)
        wait_until(lambda: not worker.serving, "the loss of the broker")
        add_job("without")
        aggregator.wait_for("without")
        broker.start()
        broker.wait()
        wait_until(lambda: worker.serving, "the connection")
