"""The request to stop a worker, and its grace period."""

import threading
import time


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
