"""An evaluator whose broker answers with errors alone: it pauses longer and longer."""

from contextlib import closing

import pytest
import redis

from services.common.queue import QUEUE, make_celery
from services.evaluator.hints import MAX_RECONNECT_SECONDS, RECONNECT_SECONDS, HintConsumer

ATTEMPTS = 8


class EnoughError(BaseException):
    """Ends the worker."""


@pytest.fixture
def broken_queue(redis_url):
    """A broker at which the queue's key holds no list."""
    with closing(redis.Redis.from_url(redis_url)) as client:
        client.flushall()
        client.set(QUEUE, "no list")
        yield redis_url
        client.flushall()


def test_a_queue_whose_key_is_of_a_wrong_type_is_asked_less_and_less_often(
    broken_queue, monkeypatch
):
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == ATTEMPTS:
            raise EnoughError

    monkeypatch.setattr("services.evaluator.hints.time.sleep", pause)
    app = make_celery(broken_queue)
    app.conf.worker_consumer = HintConsumer
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
