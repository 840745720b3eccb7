"""Wakes those who wait for an experiment to change, within one process."""

import asyncio
from collections import Counter, defaultdict


class Notifier:
    """Counts changes of experiments and wakes waiters; used in one event loop.

    Another aggregator on the same database does not ring here: waiters look by themselves after
    their timeout.
    """

    def __init__(self) -> None:
        self._changes: Counter[str] = Counter()
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    def seen(self, experiment_id: str) -> int:
        """Return the number of changes up to now; taken before reading what changes."""
        return self._changes[experiment_id]

    def ring(self, experiment_id: str) -> None:
        """Tell that an experiment changed."""
        self._changes[experiment_id] += 1
        for waiter in self._waiting.pop(experiment_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, experiment_id: str, seen: int, seconds: float) -> None:
        """Return at the next change after `seen`, or when the time is over."""
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
