"""Notification of an experiment's watchers ."""

import asyncio
from collections import defaultdict

from modnorm.services.common.bounded_dict import BoundedDict

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
