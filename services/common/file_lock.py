"""A lock between processes. The end of a process frees it, however the process ends."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

POLL_SECONDS = 0.2


def hold(path: Path, poll: Callable[[], None]) -> FileLock:
    """Return the lock of a file, held until it is released.

    Args:
        path: The file; made where absent.
        poll: Called again and again while another holds the lock; its errors end the wait.

    Raises:
        OSError: the file cannot be made.
    """
    lock = FileLock(path)
    while True:
        with suppress(Timeout):
            lock.acquire(timeout=POLL_SECONDS)
            return lock
        poll()
