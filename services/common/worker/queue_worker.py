"""A worker that takes job ids from one queue, with a channel to the aggregator."""

import logging
import os
import platform
import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, closing, nullcontext

from celery.exceptions import Reject

from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.settings import WorkerSettings
from modnorm.services.common.worker.queue_loop import QueueLoop
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.wire.channel import open_channel

_POLL_SECONDS = 0.2
"""Seconds between two checks whether a stop has become immediate."""

logger = logging.getLogger(__name__)


class QueueWorker(ABC):
    """A worker without a server: `run` blocks until `stop` is called from another thread.

    It installs no signal handlers, so it runs in any thread.

    Args:
        settings: Broker, aggregator, name and grace period.
        queue: Name of the queue.
        task: Name of the task in its messages.
        join_seconds: Longest stop beyond the grace period.
        kind: Ending of the worker's default name.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        queue: str,
        task: str,
        join_seconds: float,
        kind: str = "",
    ) -> None:
        self.name = settings.worker_name or f"{platform.node()}-{os.getpid()}{kind}"
        self._shutdown = Shutdown(settings.stop_grace)
        self._join_seconds = join_seconds
        self._running = threading.Lock()
        self._channel = open_channel(
            settings.aggregator_target, settings.credentials, CHANNEL_OPTIONS
        )
        self._loop = QueueLoop(
            settings.broker_url, queue=queue, task=task, handle=self._take, name=self.name
        )

    @property
    def serving(self) -> bool:
        """Whether the worker consumes the queue: connected to the broker and not stopping."""
        return self._loop.is_connected and not self._shutdown.requested.is_set()

    def run(self) -> None:
        """Work until `stop` is called; wait for a broker or an aggregator that is down."""
        with self._running, closing(self._channel), self._working():
            self._loop.run()

    def stop(self) -> None:
        """Take no more jobs; finish the current job, or release it after the grace period.

        Returns when `run` has ended. What cannot be interrupted, such as the load of a model,
        may take some seconds longer; then the job is released or its lease expires.
        """
        self._shutdown.request()
        self._loop.end()
        while not self._running.acquire(timeout=_POLL_SECONDS):
            if self._shutdown.overrun > self._join_seconds:
                logger.warning("the worker did not stop in time")
                self._release()
                return
        self._running.release()

    def stop_now(self) -> None:
        """End the grace period of the present or next stop; from any thread."""
        self._shutdown.stop_now()

    def _take(self, job_id: str) -> None:
        """Handle the job of a message; Celery acknowledges the message when this returns."""
        if self._shutdown.requested.wait(self._pause) or not self._handle(job_id):
            raise Reject("the worker is stopping", requeue=True)

    @property
    @abstractmethod
    def _pause(self) -> float:
        """Seconds to wait before the next job."""

    @abstractmethod
    def _handle(self, job_id: str) -> bool:
        """Handle a job; return False if the worker is stopping, so that another one does."""

    @abstractmethod
    def _release(self) -> None:
        """Release the jobs of a worker that does not stop in time; from any thread."""

    def _working(self) -> AbstractContextManager[object]:
        """Return the context of the work, in the thread of `run`."""
        return nullcontext()
