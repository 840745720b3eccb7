"""How often each token may call."""

import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from modnorm.errors import RateLimitedError

BURST_SECONDS = 2.0
"""A token that was silent for this long may make up for it at once."""


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

    def take(self, name: str, rate: float) -> None:
        """Count a call.

        Args:
            name: Whose.
            rate: Calls a second that it may make; 0 for any number.

        Raises:
            RateLimitedError: there were too many of late; says when to try again.
        """
        if not rate:
            return
        now, capacity = self._clock(), max(1.0, rate * BURST_SECONDS)
        bucket = self._buckets.setdefault(name, _Bucket(capacity, now))
        bucket.level = min(capacity, bucket.level + (now - bucket.time) * rate)
        bucket.time = now
        if bucket.level < 1:
            wait = (1 - bucket.level) / rate
            raise RateLimitedError(
                f"more than {rate:g} calls a second under one token",
                wait=wait,
                remedy=f"try again in {wait:.3g} s",
            )
        bucket.level -= 1
