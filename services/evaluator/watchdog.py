"""Notices an engine that hangs: no decode step ends.

A hang in a collective or in a kernel leaves the process, its health checks and its heartbeats
alive.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

LOAD_FACTOR = 3.0
"""How much longer than a decode step the loading of a model may take."""


class Watchdog:
    """Knows when the next sign of life of the engine is due; used from two threads.

    Args:
        seconds: Longest time between two decode steps.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._limit = float("inf")
        self._deadline = float("inf")

    def loading(self) -> AbstractContextManager[None]:
        """Expect the end of the context in time."""
        return self._within(LOAD_FACTOR * self._seconds, after=float("inf"))

    def working(self) -> AbstractContextManager[None]:
        """Expect signs of life inside the context."""
        return self._within(self._seconds, after=float("inf"))

    def parked(self) -> AbstractContextManager[None]:
        """Expect nothing inside the context, and signs of life again after it."""
        return self._within(float("inf"), after=self._seconds)

    def beat(self) -> None:
        """Note a sign of life."""
        with self._lock:
            self._deadline = time.monotonic() + self._limit

    @property
    def is_overdue(self) -> bool:
        """Whether a sign of life is overdue."""
        with self._lock:
            return time.monotonic() > self._deadline

    @contextmanager
    def _within(self, seconds: float, *, after: float) -> Iterator[None]:
        self._expect(seconds)
        try:
            yield
        finally:
            self._expect(after)

    def _expect(self, seconds: float) -> None:
        with self._lock:
            self._limit = seconds
            self._deadline = time.monotonic() + seconds
