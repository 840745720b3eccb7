"""A broker that stops during a job and is restarted."""

import signal
import threading
from collections.abc import Callable

from modnorm.services.common.queue import make_celery, publish
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.celery_worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs import servers
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_worker_reconnects_after_losing_the_broker_during_a_job(
    target: str, aggregator, add_job: Callable[..., messages.Job]
) -> None:
    with servers.broker() as broker:
        settings = EvaluatorSettings(
            broker_url=broker.url, aggregator_target=target, stop_grace=0.0
        )
        worker = Worker(settings)
        thread = threading.Thread(target=worker.run)
        add_job("before")
        add_job("after")
        try:
            thread.start()
            publish(make_celery(broker.url), "before")
            wait_until(lambda: aggregator.calls["ClaimJob"] == 1, "the claim")
            broker.end(signal.SIGKILL)
            aggregator.wait_for("before")
            wait_until(lambda: not worker.serving, "the loss of the broker")
            broker.start()
            broker.wait()
            publish(make_celery(broker.url), "after")
            aggregator.wait_for("after")
            assert worker.serving
        finally:
            worker.stop()
            thread.join(HANG_SECONDS)
    assert not thread.is_alive()
