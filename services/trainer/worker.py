"""The trainer without a server: takes job ids from its queue and trains."""

import logging
import os
import platform
import threading

from celery.exceptions import Reject
from prometheus_client import CollectorRegistry

from modnorm.training import missing_packages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.v1.models_pb2_grpc import ModelServiceStub
from modnorm.wire.channel import open_channel
from services.common.channels import CHANNEL_OPTIONS
from services.common.queue import TRAIN_QUEUE, TRAIN_TASK
from services.common.settings import TrainerSettings
from services.common.worker.queue_loop import QueueLoop
from services.common.worker.shutdown import Shutdown
from services.trainer.metrics import TrainerMetrics
from services.trainer.training_client import TrainingClient
from services.trainer.training_runner import TrainingRunner

JOIN_SECONDS = 25.0
"""Longest stop beyond the grace period: the end of the child, a call, a poll of the queue."""

logger = logging.getLogger(__name__)


def is_available() -> bool:
    """Return whether the extra `modnorm[train]` is installed."""
    return not missing_packages()


class Worker:
    """A trainer: `run` blocks until `stop` is called from another thread.

    It installs no signal handlers, so it runs in any thread.
    """

    def __init__(
        self, settings: TrainerSettings, *, registry: CollectorRegistry | None = None
    ) -> None:
        self._shutdown = Shutdown(settings.stop_grace)
        self._ended = threading.Event()
        name = settings.worker_name or f"{platform.node()}-{os.getpid()}-trainer"
        self._channel = open_channel(
            settings.aggregator_target, settings.credentials, CHANNEL_OPTIONS
        )
        client = TrainingClient(
            JobServiceStub(self._channel),
            ModelServiceStub(self._channel),
            worker=name,
            shutdown=self._shutdown,
        )
        metrics = TrainerMetrics(registry or CollectorRegistry())
        self._runner = TrainingRunner(client, self._shutdown, settings, metrics)
        self._loop = QueueLoop(
            settings.broker_url,
            queue=TRAIN_QUEUE,
            task=TRAIN_TASK,
            handle=self._train,
            name=name,
        )

    @property
    def serving(self) -> bool:
        """Whether the worker consumes the queue: connected to the broker and not stopping."""
        return self._loop.is_connected and not self._shutdown.requested.is_set()

    def run(self) -> None:
        """Work until `stop` is called; wait for a broker or an aggregator that is down."""
        try:
            self._loop.run()
        finally:
            self._channel.close()
            self._ended.set()

    def stop(self) -> None:
        """Take no more jobs and release the present one, whose checkpoints stay.

        Returns when `run` has ended, or after the grace period and `JOIN_SECONDS`: the lease
        then expires.
        """
        self._shutdown.request()
        self._loop.end()
        while not self._ended.wait(0.2):
            if self._shutdown.overrun > JOIN_SECONDS:
                logger.warning("the worker did not stop in time")
                return

    def stop_now(self) -> None:
        """End the grace period of the present or next stop; from any thread."""
        self._shutdown.stop_now()

    def _train(self, job_id: str) -> None:
        """Run the job of a message; Celery acknowledges the message when this returns."""
        if self._shutdown.requested.wait(self._runner.pause):
            raise Reject("the worker is stopping", requeue=True)
        self._runner.run(job_id)
