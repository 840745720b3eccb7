"""When a worker stops: at once when idle, after a grace period when it is in the middle."""

import threading
import time


class Shutdown:
    """A request to stop, and how long the job in hand may still take.

    Args:
        grace: Seconds that the job in hand gets to finish before it is handed back.
    """

    def __init__(self, grace: float) -> None:
        self.requested = threading.Event()
        """Set once the worker is to stop."""
        self._grace = grace
        self._deadline = float("inf")
        self._hurried = threading.Event()
        self._hurried_at = float("inf")

    def request(self) -> None:
        """Ask to stop; the grace period begins with the first request."""
        if not self.requested.is_set():
            self._deadline = time.monotonic() + self._grace
            self.requested.set()

    def hurry(self) -> None:
        """Ask to stop now: the grace period, whether it has begun or not, is over."""
        self._hurried_at = min(self._hurried_at, time.monotonic())
        self._hurried.set()
        self.requested.set()

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds, never past the end of the grace period."""
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
