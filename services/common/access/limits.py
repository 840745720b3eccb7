"""How often each token may call, and how much it may hold open."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass

from modnorm.errors import RateLimitedError

BURST_SECONDS = 2.0
"""A token that was silent for this long may make up for it at once."""
STREAM_WAIT = 5.0
"""Seconds after which a token with too many streams may look whether one has ended."""


@dataclass(slots=True)
class _Bucket:
    level: float
    time: float


class RateLimits:
    """Token buckets by name; used in one thread.

    Args:
        clock: The time, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: MutableMapping[str, _Bucket] = {}

    def take(self, name: str, rate: float, calls: int = 1) -> None:
        """Count calls.

        Args:
            name: Whose.
            rate: Calls a second that it may make; 0 for any number.
            calls: Calls that it makes now.

        Raises:
            RateLimitedError: there were too many of late; says when to try again.
        """
        if not rate:
            return
        now, capacity = self._clock(), max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(name, _Bucket(capacity, now))
        bucket.level = min(capacity, bucket.level + (now - bucket.time) * rate)
        bucket.time = now
        # A message of more calls than the bucket holds is let in once the bucket is full.
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
    """Counts the streams that are open by the name of their token; used in one thread.

    Args:
        most: Streams that one token may hold open; 0 for any number.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Count a stream as long as the context lasts.

        Args:
            name: Whose.

        Raises:
            RateLimitedError: the token has as many as it may.
        """
        if self._most and self._open[name] >= self._most:
            raise RateLimitedError(
                f"the token {name!r} holds {self._most} streams open",
                wait=STREAM_WAIT,
                field="stream_limit",
                remedy="end some, use several tokens, or raise MODNORM_STREAM_LIMIT of the server",
            )
        self._open[name] += 1
        try:
            yield
        finally:
            self._open[name] -= 1
            if not self._open[name]:
                del self._open[name]
