"""Notification of an experiment's watchers within one process."""

import asyncio
from collections import Counter, defaultdict


class Notifier:
    """Counts changes of experiments and wakes waiters; used in one event loop.

    It does not see changes by another aggregator on the same database, so waiters have a timeout.
    """

    def __init__(self) -> None:
        self._changes: Counter[str] = Counter()
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def seen(self, experiment_id: str) -> int:
        """Return the number of changes so far; call it before reading the experiment."""
        return self._changes[experiment_id]

    def notify(self, experiment_id: str) -> None:
        """Count a change of an experiment and wake its waiters."""
        self._changes[experiment_id] += 1
        for waiter in self._waiting.pop(experiment_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, experiment_id: str, seen: int, seconds: float) -> None:
        """Return at the next change after number `seen`, or after the timeout in seconds."""
        if self._changes[experiment_id] != seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[experiment_id].add(waiter)
        try:
            await asyncio.wait([waiter], timeout=seconds)
        finally:
            self._forget(experiment_id, waiter)

    def _forget(self, experiment_id: str, waiter: "asyncio.Future[None]") -> None:
        waiters = self._waiting.get(experiment_id, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiting.pop(experiment_id, None)
