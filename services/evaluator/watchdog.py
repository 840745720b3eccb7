"""Detection of an engine that hangs, which shows by a missing decode step.

If a collective or a kernel hangs, the process still answers health checks and sends heartbeats.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

LOAD_FACTOR = 3.0
"""The load of a model may take this many times as long as a decode step."""


class Watchdog:
    """Tracks when the next sign of life of the engine is due; used from two threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._limit = float("inf")
        self._deadline = float("inf")

    def loading(self) -> AbstractContextManager[None]:
        """Expect the context to end within the limit for loading."""
        return self._within(LOAD_FACTOR * self._seconds)

    def working(self) -> AbstractContextManager[None]:
        """Expect regular signs of life inside the context."""
        return self._within(self._seconds)

    def beat(self) -> None:
        """Record a sign of life."""
        with self._lock:
            self._deadline = time.monotonic() + self._limit

    @property
    def is_overdue(self) -> bool:
        """Whether a sign of life is overdue."""
        with self._lock:
            return time.monotonic() > self._deadline

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        self._expect(seconds)
        try:
            yield
        finally:
            self._expect(float("inf"))

    def _expect(self, seconds: float) -> None:
        with self._lock:
            self._limit = seconds
            self._deadline = time.monotonic() + seconds
