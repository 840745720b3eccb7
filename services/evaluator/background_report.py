"""The end of a job beside the beginning of the next."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context


class Behind:
    """Does one piece of work at a time in a thread of its own, and lets nobody get further ahead.

    Used by one thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "behind")
        self._last: Future[None] | None = None

    def hand_over(self, work: Callable[[], None]) -> None:
        """Begin work, in the context of the caller, once the piece before it is over."""
        self.settle()
        self._last = self._thread.submit(copy_context().run, work)

    def settle(self) -> None:
        """Wait for what was handed over last; raise what it raised."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Settle, and let go of the thread."""
        self.settle()
        self._thread.shutdown()
