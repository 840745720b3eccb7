"""A lock between processes, released by any end of its process."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

POLL_SECONDS = 0.2


def hold(path: Path, poll: Callable[[], None]) -> FileLock:
    """Acquire the lock of a file; return it, held until it is released.

    The file is created if absent. `poll` is called repeatedly during the wait; its errors end the
    wait.

    Raises:
        OSError: the file cannot be created.
    """
    lock = FileLock(path)
    while True:
        with suppress(Timeout):
            lock.acquire(timeout=POLL_SECONDS)
            return lock
        poll()
