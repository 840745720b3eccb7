"""The limit of requests in progress."""

from collections.abc import Iterator
from contextlib import contextmanager

from modnorm.serving.api_errors import overloaded
from modnorm.serving.metrics import ServerMetrics


class RequestLimit:
    """Counts requests in progress and refuses those above a limit; used by one event loop.

    Args:
        limit: Most requests that wait or are answered.
        metrics: Shows their number.
    """

    def __init__(self, limit: int, metrics: ServerMetrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self._open = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a request inside the context.

        Raises:
            ApiError: too many requests are in progress.
        """
        if self._open >= self._limit:
            raise overloaded(self._limit)
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._open += change
        self._metrics.open.set(self._open)
