"""A broker that is down: the worker goes on, and hears it again once it is back."""

import signal
import threading
from collections.abc import Callable

from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.worker import Worker
from modnorm.v1 import evaluation_pb2 as messages
from verification.labs import servers
from verification.labs.waiting import HANG_SECONDS, wait_until


def test_a_worker_works_without_its_broker_and_reconnects(
    target: str, aggregator, add_job: Callable[..., messages.Job]
) -> None:
    with servers.broker() as broker:
        settings = EvaluatorSettings(
            broker_url=broker.url, aggregator_target=target, stop_grace=0.0, heartbeat_seconds=0.1
        )
        worker = Worker(settings)
        thread = threading.Thread(target=worker.run)
        try:
            thread.start()
            wait_until(lambda: worker.serving, "the connection")
            broker.end(signal.SIGKILL)
            wait_until(lambda: not worker.serving, "the loss of the broker")
            add_job("without")
            aggregator.wait_for("without")
            broker.start()
            broker.wait()
            wait_until(lambda: worker.serving, "the connection")
        finally:
            worker.stop()
            thread.join(HANG_SECONDS)
    assert not thread.is_alive()
