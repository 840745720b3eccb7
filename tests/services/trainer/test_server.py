"""A trainer as a service: its queue, its health, its stop, and the missing extra."""

import asyncio

import pytest

from modnorm.errors import PreconditionError
from modnorm.services.common.queue import TRAIN_QUEUE, make_celery, publish
from modnorm.services.trainer import worker
from modnorm.services.trainer.server import build
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs.waiting import wait_until


async def test_a_trainer_takes_jobs_from_its_queue_and_stops(
    settings, aggregator, add_job, redis_url
):
    add_job(model_digest="0" * 64)  # fails without a child
    queue = make_celery(redis_url)
    service = build(settings.model_copy(update={"broker_url": redis_url}))
    await service.start()
    publish(queue, "a", TRAIN_QUEUE)
    await asyncio.to_thread(wait_until, lambda: aggregator.failures, "the failure")
    assert service._queue_worker.serving
    await service.stop()
    assert not service._queue_worker.serving
    assert aggregator.failures[0].kind == messages.FAILURE_KIND_FATAL


async def test_a_stopping_trainer_releases_its_job(settings, aggregator, add_job, redis_url):
    add_job()
    queue = make_celery(redis_url)
    service = build(settings.model_copy(update={"broker_url": redis_url}))
    await service.start()
    publish(queue, "a", TRAIN_QUEUE)
    await asyncio.to_thread(wait_until, lambda: aggregator.heartbeats, "a heartbeat")
    await service.stop()
    (failure,) = aggregator.failures
    assert failure.kind == messages.FAILURE_KIND_RELEASED


def test_the_missing_extra_is_named(settings, monkeypatch):
    monkeypatch.setattr("modnorm.training.job.find_spec", lambda name: None)
    assert not worker.is_available()
    with pytest.raises(PreconditionError) as caught:
        build(settings)
    assert caught.value.remedy == "pip install 'modnorm[train]'"
