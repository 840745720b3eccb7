"""Batches of reports: each batch shares one transaction, since round trips cost most of a report.

Claims and heartbeats have transactions of their own.
"""

import asyncio
from collections.abc import Callable, Sequence

from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.jobs.report_checks import Report

LARGEST_BATCH = 256


class ReportBatches:
    """Stores reports in order of arrival, one batch at a time; used in one event loop.

    While a thread stores a batch, further reports wait for the next one.
    """

    def __init__(self, store: Callable[[Sequence[Report]], Sequence[Change | Exception]]) -> None:
        self._store = store
        self._waiting: list[tuple[Report, asyncio.Future[Change]]] = []
        self._driver: asyncio.Task[None] | None = None

    async def submit(self, report: Report) -> Change:
        """Return the change of a stored report, or raise its error."""
        answer: asyncio.Future[Change] = asyncio.get_running_loop().create_future()
        self._waiting.append((report, answer))
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive())
        return await answer

    async def _drive(self) -> None:
        """Store batches until none is waiting."""
        while self._waiting:
            batch = self._waiting[:LARGEST_BATCH]
            del self._waiting[:LARGEST_BATCH]
            answers = await asyncio.to_thread(self._store, [report for report, _ in batch])
            for (_, future), answer in zip(batch, answers, strict=True):
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        self._driver = None
