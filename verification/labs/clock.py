"""A wall clock that another process can move: `time.time` plus the offset in a shared file.

Only `time.time` is moved. asyncio, gRPC and thread timeouts use the monotonic clock, which real
adjustments of the time of day do not move either.
"""

import mmap
import struct
import time
from pathlib import Path

_OFFSET = struct.Struct("<d")
_real = time.time


class MovableClock:
    """The time of day in seconds since the epoch, moved once a file is attached."""

    def __init__(self) -> None:
        self._shared: mmap.mmap | None = None

    def __call__(self) -> float:
        """Return the time."""
        offset = 0.0 if self._shared is None else _OFFSET.unpack(self._shared[: _OFFSET.size])[0]
        return _real() + float(offset)

    def attach(self, path: Path) -> None:
        """Use the offset in a file from now on."""
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _OFFSET.size, access=mmap.ACCESS_READ)


def set_offset(path: Path, seconds: float) -> None:
    """Move the clock of every process that uses a file, which is created if absent."""
    content = _OFFSET.pack(seconds)
    if not path.exists():
        path.write_bytes(content)
    with path.open("r+b") as file:
        file.write(content)
