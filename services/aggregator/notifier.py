"""Wakes those who wait for an experiment to change, within one process."""

import asyncio
from collections import Counter


class Notifier:
    """Counts changes of experiments and wakes waiters; used in one event loop.

    Another aggregator on the same database does not ring here: waiters look by themselves after
    their timeout.
    """

    def __init__(self) -> None:
        self._changes: Counter[str] = Counter()
        self._changed = asyncio.Condition()

    def seen(self, experiment_id: str) -> int:
        """Return the number of changes up to now; taken before reading what changes."""
        return self._changes[experiment_id]

    async def ring(self, experiment_id: str) -> None:
        """Tell that an experiment changed."""
        async with self._changed:
            self._changes[experiment_id] += 1
            self._changed.notify_all()

    async def wait(self, experiment_id: str, seen: int, seconds: float) -> None:
        """Return at the next change after `seen`, or when the time is over."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._changes[experiment_id] != seen)
        except TimeoutError:
            return
