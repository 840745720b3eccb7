"""A request to stop a worker, and its grace period."""

import threading
import time


class Shutdown:
    """A request to stop; may be made and read from any thread.

    Args:
        grace: Seconds that the job in hand gets to finish before it is handed back.
    """

    def __init__(self, grace: float) -> None:
        self.requested = threading.Event()
        """Set by the first request."""
        self._grace = grace
        self._deadline = float("inf")
        self._hurried = threading.Event()
        self._hurried_at = float("inf")

    def request(self) -> None:
        """Request a stop; the grace period begins with the first request."""
        if not self.requested.is_set():
            self._deadline = time.monotonic() + self._grace
            self.requested.set()

    def hurry(self) -> None:
        """Request a stop without a grace period, or end the one that has begun."""
        self._hurried_at = min(self._hurried_at, time.monotonic())
        self._hurried.set()
        self.requested.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds, but never past the end of the grace period."""
        wake = time.monotonic() + seconds
        if self.requested.wait(seconds):
            self._hurried.wait(max(0.0, min(wake, self._deadline) - time.monotonic()))

    @property
    def overdue(self) -> bool:
        """Whether the grace period is over."""
        return self.overrun >= 0

    @property
    def overrun(self) -> float:
        """Seconds since the end of the grace period, negative before."""
        return time.monotonic() - min(self._deadline, self._hurried_at)
