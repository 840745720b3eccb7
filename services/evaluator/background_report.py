"""Scoring and reporting of one job while the engine works on the next."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context


class BackgroundReport:
    """Runs one piece of work at a time in a thread of its own; used by one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "background-report")
        self._last: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Start work in the caller's context, after the work before it has finished."""
        self.wait()
        self._last = self._thread.submit(copy_context().run, work)

    def wait(self) -> None:
        """Wait for the last submitted work; raise its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the last work and end the thread."""
        self.wait()
        self._thread.shutdown()
