"""Waits for expected events, with one limit for tests and verification."""

import os
import time
from collections.abc import Callable
from pathlib import Path

HANG_SECONDS = 600.0
"""Limit of a single wait; a longer one counts as a hang.

An idle machine with two cores needs a twentieth of this. On a busy machine time passes as slowly
as the awaited processes get the cores, so that only defects reach the limit.
"""
_LOAD = Path("/proc/loadavg")


def wait_until(
    condition: Callable[[], object],
    what: str,
    seconds: float = HANG_SECONDS,
    *,
    pause: float = 0.05,
) -> None:
    """Wait until a condition holds, or raise TimeoutError with what was awaited."""
    left, before = seconds, time.monotonic()
    while not condition():
        now = time.monotonic()
        left -= (now - before) * _share_of_a_core()
        before = now
        if left < 0:
            raise TimeoutError(f"timed out after {seconds:g} s: {what}")
        time.sleep(pause)


def _share_of_a_core() -> float:
    """Return how much of a core each runnable process gets, at most 1."""
    if not _LOAD.exists():
        return 1.0
    runnable = int(_LOAD.read_text(encoding="ascii").split()[3].split("/")[0])
    return min(1.0, (os.cpu_count() or 1) / max(1, runnable))
