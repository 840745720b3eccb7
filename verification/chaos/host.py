"""Faults of a host that require root: a small disk, and a network namespace."""

import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tenacity import retry, stop_after_attempt, wait_fixed

BALLAST = "ballast"
_CHUNK = 256 * 1024


@dataclass(frozen=True)
class Namespace:
    """A network namespace joined to this one by a pair of virtual Ethernet devices."""

    path: str
    here: str
    device: str

    def cut(self) -> None:
        """Drop every packet silently in both directions."""
        _ip("link", "set", self.device, "down")

    def join(self) -> None:
        """Pass packets again."""
        _ip("link", "set", self.device, "up")


@contextmanager
def namespace() -> Iterator[Namespace | None]:
    """Create a network namespace; yield None without the permission."""
    name, block = f"mn{os.getpid()}", os.getpid() % 16_000
    ours, theirs = f"{name}a", f"{name}b"
    # The block for network benchmarks (RFC 2544), which no real network uses.
    prefix = f"198.{18 + block // 8192}.{block // 32 % 256}."
    here, there = (f"{prefix}{block % 32 * 8 + last}" for last in (1, 2))
    try:
        # Processes that make the first namespace at once disturb each other's mount.
        retry(stop=stop_after_attempt(3), wait=wait_fixed(0.2), reraise=True)(_ip)(
            "netns", "add", name
        )
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        _ip("addr", "add", f"{here}/30", "dev", ours)
        _ip("link", "set", ours, "up")
        _ip("-n", name, "addr", "add", f"{there}/30", "dev", theirs)
        _ip("-n", name, "link", "set", theirs, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield Namespace(f"/run/netns/{name}", here, ours)
    finally:
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", ours)
        _ip("netns", "del", name)


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[bool]:
    """Mount a small file system on a directory; yield False without the permission."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _run(("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=755", "tmpfs", str(folder)))
    except (OSError, subprocess.CalledProcessError):
        yield False
        return
    try:
        yield True
    finally:
        _run(("umount", "--lazy", str(folder)))


def fill(folder: Path) -> None:
    """Write a file until its disk is full."""
    with (folder / BALLAST).open("wb", buffering=0) as ballast:
        for size in (_CHUNK, 4096):
            with suppress(_FullError):
                while True:
                    _write(ballast.fileno(), size)


def empty(folder: Path) -> None:
    """Delete the file of `fill`."""
    (folder / BALLAST).unlink(missing_ok=True)


class _FullError(Exception):
    """The disk is full."""


def _write(descriptor: int, size: int) -> None:
    try:
        os.write(descriptor, b"\0" * size)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _FullError from error
        raise


def _ip(*arguments: str) -> None:
    _run(("ip", *arguments))


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
