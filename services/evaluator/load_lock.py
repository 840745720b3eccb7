"""Workers of one GPU load their models in turn: vLLM measures the memory that others leave."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOOK_SECONDS = 0.2
"""Seconds between two looks at whether it is this worker's turn."""


@contextmanager
def turn(lock: Path | None, poll: Callable[[], None]) -> Iterator[None]:
    """Hold a file's lock, which the end of a process frees, however it ends.

    Args:
        lock: The file; no wait when None.
        poll: Called while another holds it; what it raises ends the wait.
    """
    if lock is None:
        yield
        return
    with lock.open("a", encoding="utf-8") as file:
        while not _took(file.fileno()):
            poll()
            time.sleep(LOOK_SECONDS)
        yield


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
