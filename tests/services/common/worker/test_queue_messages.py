"""Celery checks between two waits for a message whether to stop."""

from contextlib import closing

from modnorm.services.common.queue import make_celery
from modnorm.services.common.worker.queue_messages import POLL_SECONDS, QueueConsumer


def test_waits_for_messages_are_short() -> None:
    app = make_celery("memory://")
    app.conf.worker_consumer = QueueConsumer
    worker = app.WorkController(pool="solo", use_eventloop=False)
    waits: list[float] = []
    with closing(worker.consumer.connect()) as connection:
        connection.transport.drain_events = lambda _, timeout: waits.append(timeout)
        for seconds in (2.0, 0.05):
            connection.drain_events(timeout=seconds)
    assert waits == [POLL_SECONDS, 0.05]
