"""Notification of changes: to watchers, and through a broker that may be down to idle workers."""

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress

from celery import Celery

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.common.queue import announce_work

KEPT = 10_000
"""Most experiments whose last change is stored; older changes were read long ago."""


class Notifier:
    """Numbers the changes of experiments and wakes waiters; used in one event loop."""

    def __init__(self) -> None:
        self._changes = 0
        self._last: BoundedDict[str, int] = BoundedDict(KEPT)
        """Number of the last change, by experiment."""
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def seen(self) -> int:
        """Return the number of the last change of any; call it before reading an experiment."""
        return self._changes

    def notify(self, experiment_id: str) -> None:
        """Number a change of an experiment and wake its waiters."""
        self._changes += 1
        self._last[experiment_id] = self._changes
        for waiter in self._waiting.pop(experiment_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, experiment_id: str, seen: int) -> None:
        """Return at the next change after number `seen`."""
        if self._last.get(experiment_id, 0) > seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[experiment_id].add(waiter)
        try:
            await waiter
        finally:
            self._forget(experiment_id, waiter)

    def _forget(self, experiment_id: str, waiter: "asyncio.Future[None]") -> None:
        waiters = self._waiting.get(experiment_id, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiting.pop(experiment_id, None)


PAUSE_SECONDS = 0.05
"""Shortest time between two messages: each makes every idle worker ask for a job."""
RETRY_SECONDS = 2.0
CHECK_SECONDS = 60.0
"""Longest time between two messages, so that an outage shows before there is work."""

logger = logging.getLogger(__name__)


class Announcer:
    """Sends messages in the background, so that no call waits for the broker."""

    def __init__(self, app: Celery, metrics: AggregatorMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._due = asyncio.Event()
        self._due.set()

    def announce(self) -> None:
        """Tell idle workers soon that jobs are pending; called in the event loop."""
        self._due.set()

    async def run(self) -> None:
        """Send messages until cancelled."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._due.wait(), CHECK_SECONDS)
            self._due.clear()
            try:
                await asyncio.to_thread(announce_work, self._app)
            except UnavailableError as error:
                logger.warning("not announced: %s", error)
                self._metrics.broker_up.set(0)
                self._due.set()
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._metrics.broker_up.set(1)
                await asyncio.sleep(PAUSE_SECONDS)
