"""A lock between processes, released by any end of its process."""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A lock that this process holds."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Remove the file and release its lock; a process that waits then locks a new file."""
        with suppress(OSError):  # a file that stays is locked again
            self.path.unlink()
        os.close(self.descriptor)


def hold(path: Path, poll: Callable[[], None]) -> HeldLock:
    """Acquire the lock of a file; return it, held until it is released.

    The file exists while it is locked; a killed process leaves it for the next one. `poll` is
    called repeatedly during the wait; its errors end the wait.

    Raises:
        OSError: the file cannot be created.
    """
    while (descriptor := _lock(path)) is None:
        poll()
        time.sleep(POLL_SECONDS)
    return HeldLock(path, descriptor)


def _lock(path: Path) -> int | None:
    """Lock a file; return None if another process has locked it, or has just removed it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if _try_flock(descriptor) and os.path.samestat(path.stat(), os.fstat(descriptor)):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _try_flock(descriptor: int) -> bool:
    """Lock an open file; return False if another process has locked it.

    On a file system without locks this returns True: to do work twice is better than never.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:  # the second one on some NFS servers
            return False
        if error.errno != errno.ENOSYS:
            raise
    return True
