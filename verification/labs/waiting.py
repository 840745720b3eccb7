"""Waits for expected events, with one limit for tests and verification."""

import time
from collections.abc import Callable

HANG_SECONDS = 600.0
"""Limit of a single wait; a longer one counts as a hang.

An idle machine with two cores needs a twentieth of this, a busy or slow one several times as
much. Only defects reach the limit.
"""


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = HANG_SECONDS,
    *,
    pause: float = 0.05,
) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: the condition did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {seconds:g} s: {what}")
        time.sleep(pause)
