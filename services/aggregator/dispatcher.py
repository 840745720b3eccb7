"""Job ids on their way to the broker, which may be down, slow or forgetful."""

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context, copy_context

from celery import Celery

from modnorm.errors import UnavailableError
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.stores.jobs import JobStore
from services.common.queue import publish, queued

logger = logging.getLogger(__name__)


class Dispatcher:
    """Publishes jobs in the background, so that no call waits for the broker.

    Args:
        app: The Celery application.
        jobs: Knows what is pending.
        metrics: What is counted.
    """

    def __init__(self, app: Celery, jobs: JobStore, metrics: AggregatorMetrics) -> None:
        self._app = app
        self._jobs = jobs
        self._metrics = metrics
        self._waiting: asyncio.Queue[tuple[Context, Sequence[str]]] = asyncio.Queue()

    def send(self, job_ids: Sequence[str]) -> None:
        """Have jobs published soon, in the context of the caller: its trace and its log fields.

        Used in the event loop.
        """
        if job_ids:
            self._waiting.put_nowait((copy_context(), job_ids))

    async def run(self) -> None:
        """Publish what `send` was given, until cancelled."""
        while True:
            context, job_ids = await self._waiting.get()
            await asyncio.create_task(self._publish(job_ids), context=context)

    async def reconcile(self) -> None:
        """Publish all pending jobs when the broker holds fewer messages than jobs are pending.

        A message that is there twice is harmless; one that was lost is noticed as soon as the
        queue has drained that far.

        The broker is asked in an idle lab, too: whoever watches is to know that it is down before
        there is work.
        """
        pending = await asyncio.to_thread(self._jobs.pending)
        try:
            missing = await asyncio.to_thread(queued, self._app) < len(pending)
        except UnavailableError as error:
            self._metrics.broker_up.set(0)
            logger.warning("not reconciled: %s", error)
            return
        self._metrics.broker_up.set(1)
        if missing:
            logger.info("pending jobs are published again", extra={"jobs": len(pending)})
            self._metrics.reconciled.inc(len(pending))
            await self._publish(pending)

    async def _publish(self, job_ids: Sequence[str]) -> None:
        try:
            await asyncio.to_thread(self._publish_all, job_ids)
        except UnavailableError as error:
            self._metrics.broker_up.set(0)
            self._metrics.unpublished.inc(len(job_ids))
            logger.warning("not published: %s", error, extra={"jobs": len(job_ids)})
        else:
            self._metrics.broker_up.set(1)
            self._metrics.published.inc(len(job_ids))

    def _publish_all(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            publish(self._app, job_id)
