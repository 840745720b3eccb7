"""Growing pauses between attempts that fail one after another."""

import time
from collections.abc import Callable


class Backoff:
    """The pause before each next attempt: doubled up to a bound, and short again after success.

    Args:
        first: Seconds before the second attempt.
        most: Longest pause in seconds; an attempt that lasts longer was a success.
        clock: Seconds that only grow.
    """

    def __init__(
        self, first: float, most: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first = first
        self._most = most
        self._clock = clock
        self._next = first
        self._began = clock()

    def after_failure(self) -> float:
        """Return how many seconds to wait before the next attempt, which begins after them."""
        now = self._clock()
        pause = self._first if now - self._began > self._most else self._next
        self._next = min(2 * pause, self._most)
        self._began = now + pause
        return pause
