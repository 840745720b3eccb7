"""Publication of job ids to the broker, which may be down, slow or lose messages."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextvars import Context, copy_context

from celery import Celery

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.common.queue import publish_all, queued

BATCH = 100
"""Jobs in one batch of messages."""
BATCH_SECONDS = 0.05
"""Shortest time from the start of one batch to the next. A batch may take half of it, which leaves
time for calls. Workers cannot claim as fast."""

logger = logging.getLogger(__name__)


class Dispatcher:
    """Publishes jobs in the background, so that no call waits for the broker."""

    def __init__(self, app: Celery, jobs: JobStore, metrics: AggregatorMetrics) -> None:
        self._app = app
        self._jobs = jobs
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[Context, Sequence[str]]] = asyncio.Queue()
        self._unsent = 0

    def send(self, job_ids: Sequence[str]) -> None:
        """Schedule jobs for publication, with the caller's trace and log fields.

        Called in the event loop.
        """
        if job_ids:
            self._unsent += len(job_ids)
            self._waiting.put_nowait((copy_context(), job_ids))

    async def run(self) -> None:
        """Publish queued jobs until cancelled."""
        while True:
            context, job_ids = await self._waiting.get()
            try:
                await asyncio.create_task(self._publish(job_ids), context=context)
            finally:
                self._unsent -= len(job_ids)

    async def reconcile(self) -> None:
        """Publish the first pending jobs again if the broker holds too few messages.

        A second message for a job is harmless. Lost messages show only when the queue is shorter
        than the list of pending jobs. Jobs that workers are about to claim are pending without a
        message; they are the first, so few other jobs are published twice.

        The broker is also queried in an idle lab, so that an outage shows before there is work.
        """
        try:
            waiting = await asyncio.to_thread(queued, self._app)
        except UnavailableError as error:
            self._metrics.broker_up.set(0)
            logger.warning("not reconciled: %s", error)
            return
        self._metrics.broker_up.set(1)
        pending = await asyncio.to_thread(self._jobs.count_pending)
        missing = pending - waiting - self._unsent
        if missing > 0:
            first = await asyncio.to_thread(self._jobs.pending, limit=missing)
            logger.info("pending jobs are published again", extra={"jobs": len(first)})
            self._metrics.reconciled.inc(len(first))
            await self._publish(first)

    async def _publish(self, job_ids: Sequence[str]) -> None:
        """Publish jobs in batches, with pauses for calls."""
        for start in range(0, len(job_ids), BATCH):
            batch, began = job_ids[start : start + BATCH], time.monotonic()
            try:
                await asyncio.to_thread(publish_all, self._app, batch)
            except UnavailableError as error:
                left = len(job_ids) - start
                self._metrics.broker_up.set(0)
                self._metrics.unpublished.inc(left)
                logger.warning("not published: %s", error, extra={"jobs": left})
                return
            self._metrics.broker_up.set(1)
            self._metrics.published.inc(len(batch))
            if start + BATCH < len(job_ids):
                took = time.monotonic() - began
                await asyncio.sleep(max(BATCH_SECONDS - took, took))
