"""The Celery worker with the in-memory broker in a thread, as in embedded runs."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from modnorm.services.common.queue import make_celery, publish, queued
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.candidate_lease import CandidateLease
from modnorm.services.evaluator.celery_worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from tests.services.evaluator.run_job import run_job
from verification.labs.waiting import HANG_SECONDS

AddJob = Callable[..., messages.Job]


@pytest.fixture
def settings(target: str) -> EvaluatorSettings:
    return EvaluatorSettings(
        bind_address="127.0.0.1:0",
        broker_url=f"memory://{uuid.uuid4().hex}",
        aggregator_target=target,
        heartbeat_seconds=0.1,
        stop_grace=0.0,
        worker_name="w",
        torch_threads=1,
    )


@pytest.fixture
def worker(settings: EvaluatorSettings) -> Iterator[Worker]:
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield worker
    worker.stop()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert not worker.serving


def test_published_jobs_are_reported(
    worker: Worker, settings: EvaluatorSettings, aggregator, add_job: AddJob
) -> None:
    app = make_celery(settings.broker_url)
    for job_id in "ab":
        add_job(job_id)
        publish(app, job_id)
    publish(app, "a")
    for job_id in "ab":
        aggregator.wait_for(job_id)
    assert worker.serving
    assert {report.worker for report in aggregator.reports.values()} == {"w"}
    assert {report.environment["threads"] for report in aggregator.reports.values()} == {"1"}


@pytest.fixture
def patient(settings: EvaluatorSettings) -> EvaluatorSettings:
    return settings.model_copy(update={"stall_seconds": 1200.0})


def test_a_lease_is_kept_while_a_model_may_still_load(
    patient: EvaluatorSettings, aggregator, add_job: AddJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []
    is_wanted = CandidateLease.is_wanted

    def late(lease: CandidateLease) -> bool:
        lease._last_progress = time.monotonic() - 3 * patient.stall_seconds
        kept.append(is_wanted(lease))
        return kept[-1]

    monkeypatch.setattr(CandidateLease, "is_wanted", late)
    worker = Worker(patient)
    add_job()
    run_job(worker._runner, "a")
    worker._runner.close()
    assert kept
    assert all(kept)


def test_a_bad_job_does_not_end_the_worker(
    worker: Worker, settings: EvaluatorSettings, aggregator, add_job: AddJob
) -> None:
    app = make_celery(settings.broker_url)
    add_job("bad", task="chess")
    publish(app, "bad")
    aggregator.wait_for("bad")
    app.send_task("modnorm.evaluate", args=["too", "many"], queue="evaluation")
    add_job("good")
    publish(app, "good")
    aggregator.wait_for("good")
    assert set(aggregator.reports) == {"good"}
    assert worker.serving


def test_a_stop_releases_the_current_job(
    settings: EvaluatorSettings, aggregator, add_job: AddJob
) -> None:
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    add_job("long", max_tokens=1500, radius=0.1)
    publish(make_celery(settings.broker_url), "long")
    while not aggregator.calls["FetchRows"]:
        assert thread.is_alive()
        threading.Event().wait(0.02)
    worker.stop()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert aggregator.failures["long"].kind == messages.FAILURE_KIND_RELEASED


def test_a_pausing_worker_that_stops_requeues_its_message(
    settings: EvaluatorSettings, aggregator, add_job: AddJob
) -> None:
    app = make_celery(settings.broker_url)
    worker = Worker(settings)
    thread = threading.Thread(target=worker.run)
    thread.start()
    add_job("bad", task="chess")
    publish(app, "bad")
    aggregator.wait_for("bad")  # an infrastructure failure: the next job waits
    publish(app, "next")
    while queued(app):
        assert thread.is_alive()
        threading.Event().wait(0.02)
    worker.stop()
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    assert queued(app) == 1
    assert aggregator.calls["ClaimJob"] == 1


def test_a_worker_that_never_ran_can_be_stopped(settings: EvaluatorSettings) -> None:
    worker = Worker(settings)
    assert not worker.serving
    worker.stop()
