"""Exponential backoff between failing attempts."""

import time
from collections.abc import Callable


class Backoff:
    """The pause before the next attempt: doubled up to a bound, reset after success.

    Args:
        first: Seconds before the second attempt.
        most: Longest pause in seconds; an attempt that lasts longer counts as success.
        clock: Returns a monotonic time in seconds.
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
        """Return the seconds to wait before the next attempt."""
        now = self._clock()
        pause = self._first if now - self._began > self._most else self._next
        self._next = min(2 * pause, self._most)
        self._began = now + pause
        return pause
