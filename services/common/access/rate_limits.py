"""Limits of each token: calls per second and open streams."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

from modnorm.errors import RateLimitedError

BURST_SECONDS = 2.0
"""An idle token accumulates calls for this long and may then make them at once."""
STREAM_WAIT = 5.0
"""Seconds after which a token with too many streams may try again."""


@dataclass(slots=True)
class _Bucket:
    level: float
    time: float


class RateLimits:
    """Token buckets by name; used in one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: MutableMapping[str, _Bucket] = {}

    def take(self, name: str, rate: float, calls: int = 1) -> None:
        """Count calls.

        A rate of 0 allows any number of calls per second.

        Raises:
            RateLimitedError: there were too many calls; the remedy states when to try again.
        """
        if not rate:
            return
        now, capacity = self._clock(), max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(name, _Bucket(capacity, now))
        bucket.level = min(capacity, bucket.level + (now - bucket.time) * rate)
        bucket.time = now
        # A message with more calls than the bucket holds is admitted once the bucket is full.
        needed = min(calls, capacity)
        if bucket.level < needed:
            wait = (needed - bucket.level) / rate
            raise RateLimitedError(
                f"more than {rate:g} calls a second under one token",
                wait=wait,
                remedy=f"try again in {wait:.3g} s",
            )
        bucket.level -= calls


class StreamLimits:
    """Counts open streams by the name of their token; used in one thread.

    Args:
        most: Most open streams of one token; 0 for any number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Count a stream inside the context.

        Raises:
            RateLimitedError: the token has the allowed number of streams.
        """
        if self._most and self._open[name] >= self._most:
            raise RateLimitedError(
                f"the token {name!r} holds {self._most} streams open",
                wait=STREAM_WAIT,
                field="stream_limit",
                remedy="close some, use more tokens, or raise MODNORM_STREAM_LIMIT of the server",
            )
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
