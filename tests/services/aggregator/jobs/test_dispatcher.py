import asyncio
from contextlib import closing

import pytest
import redis
from prometheus_client import CollectorRegistry

from modnorm.services.aggregator.jobs.dispatcher import BATCH, Dispatcher
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.common.queue import QUEUE, make_celery, publish_all, queued
from verification.labs.waiting import HANG_SECONDS


class PendingJobs:
    """A store with pending jobs only."""

    def __init__(self, count):
        self.ids = [f"job-{index:04}" for index in range(count)]

    def count_pending(self):
        return len(self.ids)

    def pending(self, experiment_id=None, limit=None):
        return tuple(self.ids[:limit])


@pytest.fixture
def lab(redis_url):
    """A function of the number of pending jobs that makes a dispatcher and its application."""

    def make(count):
        app, jobs = make_celery(redis_url), PendingJobs(count)
        metrics = AggregatorMetrics(CollectorRegistry())
        return Dispatcher(app, jobs, metrics), app, jobs.ids  # type: ignore[arg-type]  # a few of its methods

    return make


def waiting(app, name=QUEUE):
    """Take all job ids off a queue."""
    with app.connection_for_read() as connection:
        queue = app.amqp.queues[name](connection.default_channel)
        messages = iter(lambda: queue.get(no_ack=True), None)
        return [message.payload[0][0] for message in messages]


def test_a_flushed_queue_is_refilled_in_order(lab, redis_url):
    dispatcher, app, ids = lab(2 * BATCH + 7)
    publish_all(app, ids)
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()
    asyncio.run(dispatcher.reconcile())
    assert waiting(app) == ids


def test_jobs_about_to_be_claimed_are_not_published_again(lab):
    dispatcher, app, ids = lab(500)
    publish_all(app, ids[5:])
    asyncio.run(dispatcher.reconcile())
    assert waiting(app) == [*ids[5:], *ids[:5]]


def test_a_queue_with_enough_messages_is_not_refilled(lab):
    dispatcher, app, ids = lab(20)
    publish_all(app, ids)
    asyncio.run(dispatcher.reconcile())
    assert queued(app) == len(ids)


async def test_jobs_in_publication_are_not_missing(lab):
    dispatcher, app, ids = lab(3 * BATCH)
    dispatcher.send(tuple(ids))
    await dispatcher.reconcile()
    assert queued(app) == 0
    running = asyncio.create_task(dispatcher.run())
    async with asyncio.timeout(HANG_SECONDS):
        while await asyncio.to_thread(queued, app) < len(ids):
            pass
    running.cancel()
    assert waiting(app) == ids


async def test_jobs_missed_by_a_defect_are_published_again(lab, monkeypatch):
    def broken(*_):
        raise RuntimeError

    dispatcher, app, ids = lab(3)
    dispatcher.send(tuple(ids))
    with monkeypatch.context() as patched:
        patched.setattr("modnorm.services.aggregator.jobs.dispatcher.publish_all", broken)
        with pytest.raises(RuntimeError):
            await dispatcher.run()
    await dispatcher.reconcile()
    assert waiting(app) == ids
