"""Waiting for events that must come: one limit for tests and verification."""

import time
from collections.abc import Callable

HANG_SECONDS = 600.0
"""A single wait that lasts longer hangs.

An idle machine of two cores needs a twentieth of this; a busy or slow one needs several times as
much. Only a defect waits to the end, so the limit costs nothing else.
"""


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = HANG_SECONDS,
    *,
    pause: float = 0.05,
) -> None:
    """Wait until a condition holds.

    Args:
        condition: Called again and again.
        what: The event, for the message.
        seconds: How long to wait.
        pause: Seconds between two calls.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"in vain for {seconds:g} s: {what}")
        time.sleep(pause)
