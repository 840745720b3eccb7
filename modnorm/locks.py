"""Locks between processes, which any end of a process releases.

Some network file systems have no locks. There a lock that only saves work is left out, and a
directory that needs one is refused.
"""

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from modnorm.errors import InvalidInputError

UNSUPPORTED = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL})
"""Errors of file systems without locks."""
_POLL_SECONDS = 0.05


@contextmanager
def locked(path: Path, poll: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock of a file, created if absent, inside the context.

    Without locks in its file system it excludes nobody.
    """
    while (descriptor := _try_lock(path)) is None:
        poll()
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        with suppress(OSError):  # not by closing: a forked process may have a copy
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock of a file; None if another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    is_ours = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(os.fstat(descriptor), path.stat())  # not removed meanwhile
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError as error:
        is_ours = error.errno in UNSUPPORTED
        if not is_ours:
            raise
    finally:
        if not is_ours:
            os.close(descriptor)
    return descriptor if is_ours else None


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file, which may be read-only here."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
    return False


def require_locks(directory: Path, field: str) -> None:
    """Refuse a directory whose file system lacks the locks of this module or of SQLite."""
    with tempfile.TemporaryFile(dir=directory) as probe:
        try:
            for lock in (fcntl.flock, fcntl.lockf):
                lock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock(probe, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            raise InvalidInputError(
                f"the file system of {directory} has no locks: {error.strerror}",
                field=field,
                remedy="name a directory on another file system, such as a local disk, or mount "
                "this one with locks",
            ) from error
