"""An evaluator whose broker answers only with errors: its pauses grow."""

from contextlib import closing
from types import SimpleNamespace

import pytest
import redis

from modnorm.services.common.queue import QUEUE, make_celery
from modnorm.services.common.worker import queue_messages
from modnorm.services.common.worker.queue_messages import (
    MAX_RECONNECT_SECONDS,
    RECONNECT_SECONDS,
    QueueConsumer,
)

ATTEMPTS = 8


class EnoughError(BaseException):
    """Ends the worker."""


@pytest.fixture
def broken_queue(redis_url):
    """A broker whose queue key holds no list."""
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()
        client.set(QUEUE, "no list")
        yield redis_url
        client.flushall()


def test_a_queue_key_of_a_wrong_type_is_polled_less_and_less_often(broken_queue, monkeypatch):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == ATTEMPTS:
            raise EnoughError

    monkeypatch.setattr(queue_messages, "time", SimpleNamespace(sleep=pause))
    app = make_celery(broken_queue)
    app.conf.worker_consumer = QueueConsumer
    app.conf.worker_enable_remote_control = False
    app.conf.worker_cancel_long_running_tasks_on_connection_loss = True
    worker = app.WorkController(
        pool="solo",
        concurrency=1,
        queues=[QUEUE],
        use_eventloop=False,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    with pytest.raises(EnoughError):
        worker.start()
    expected = [min(RECONNECT_SECONDS * 2**n, MAX_RECONNECT_SECONDS) for n in range(ATTEMPTS)]
    assert pauses == pytest.approx(expected)
