"""Notification of changes: to watchers, and through a broker that may be down to idle workers."""

import asyncio
import logging
from contextlib import suppress
from weakref import WeakValueDictionary

from celery import Celery

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.common.queue import announce_work


class Notifier:
    """Wakes those who wait for a change of an experiment; used in one event loop."""

    def __init__(self) -> None:
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def next_change(self, experiment_id: str) -> asyncio.Event:
        """Return the event of the next change; call it before reading the experiment."""
        return self._changes.setdefault(experiment_id, asyncio.Event())

    def notify(self, experiment_id: str) -> None:
        """Wake the waiters of an experiment."""
        if event := self._changes.pop(experiment_id, None):
            event.set()


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

    def announce(self) -> None:
        """Tell idle workers soon that jobs are pending; called in the event loop."""
        self._due.set()

    async def run(self) -> None:
        """Send messages until cancelled, the first at once."""
        self._due.set()
        while True:
            # `asyncio.wait_for` of Python 3.11 forgets a cancellation beside a due message.
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._due.wait()
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
