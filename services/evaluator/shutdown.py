"""The ends of a worker: a request to stop with a grace period, and a thread that hangs."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class Shutdown:
    """A request to stop, shared by all threads."""

    def __init__(self, grace: float) -> None:
        self.requested = threading.Event()
        """Set by the first request."""
        self._grace = grace
        self._deadline = float("inf")
        self._stop_now_requested = threading.Event()
        self._stop_now_at = float("inf")

    def request(self) -> None:
        """Request a stop; the grace period begins with the first request."""
        if not self.requested.is_set():
            self._deadline = time.monotonic() + self._grace
            self.requested.set()

    def stop_now(self) -> None:
        """Request a stop without a grace period; end the grace period if it has begun."""
        self._stop_now_at = min(self._stop_now_at, time.monotonic())
        self._stop_now_requested.set()
        self.requested.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds, at most until the end of the grace period."""
        wake = time.monotonic() + seconds
        if self.requested.wait(seconds):
            self._stop_now_requested.wait(max(0.0, min(wake, self._deadline) - time.monotonic()))

    @property
    def is_overdue(self) -> bool:
        """Whether the grace period has ended."""
        return self.overrun >= 0

    @property
    def overrun(self) -> float:
        """Seconds since the end of the grace period; negative before it."""
        return time.monotonic() - min(self._deadline, self._stop_now_at)


LOAD_FACTOR = 3.0
"""The load of a model may take this many times as long as a decode step."""


class Watchdog:
    """Tracks when the next sign of life of an engine or a judge is due; used from two threads."""

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
