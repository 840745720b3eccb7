"""Attempts at forbidden acts, sent as source into the sandbox to measure its isolation.

Each function returns True if the sandbox stopped every attempt.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Collection
from pathlib import Path

_PR_GET_NO_NEW_PRIVS = 39
_SHARED = ("/", "/tmp", "/dev/shm")  # noqa: S108  # must not be writable


def _stopped(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def _connect(family: int, kind: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family, kind) as connection:
        connection.settimeout(0.5)
        connection.connect(address)


def _send(address: tuple[str, int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.sendto(b"x", address)


def no_network(port: int, abstract: str) -> bool:
    """Try TCP and UDP to a port of the host, and a Unix socket in the abstract namespace."""
    return (
        _stopped(lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)))
        and _stopped(lambda: _send(("127.0.0.1", port)))
        and _stopped(lambda: _connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract))
    )


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(1)


def _write(path: str) -> None:
    Path(path).write_bytes(b"x")


def no_foreign_reads(secret: str, pid: int) -> bool:
    """Try to read a file of the host's user and the environment of the host's process."""
    paths = (secret, "/etc/shadow", f"/proc/{pid}/environ", f"/proc/{pid}/mem")
    return all(_stopped(lambda path=path: _read(path)) for path in paths)  # type: ignore[misc]


def no_foreign_writes(directory: str, file: str) -> bool:
    """Try to create, change and remove files in a world-writable directory."""
    return (
        _stopped(lambda: _write(f"{directory}/made"))
        and _stopped(lambda: _write(file))
        and _stopped(lambda: os.truncate(file, 0))
        and _stopped(lambda: os.close(os.open(file, os.O_RDONLY | os.O_TRUNC)))
        and _stopped(lambda: Path(file).chmod(0o600))
        and _stopped(lambda: Path(file).unlink())
        and _stopped(lambda: Path(directory, "made").mkdir())
        and all(_stopped(lambda at=at: _write(f"{at}/x")) for at in _SHARED)  # type: ignore[misc]
    )


def no_foreign_processes(pid: int) -> bool:
    """Try to send signal 0 to the host's process, the parent and all processes."""
    targets = {pid, os.getppid(), -1} - {os.getpid(), 0}
    if os.getpid() == 1:
        targets.discard(-1)
    return all(_stopped(lambda target=target: os.kill(target, 0)) for target in targets)  # type: ignore[misc]


def no_privileges() -> bool:
    """Try to become root and to change the root directory; check `no_new_privs`."""
    locked = ctypes.CDLL(None).prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1
    root = os.getuid() != 0 and not _stopped(lambda: os.setuid(0))
    return locked and not root and _stopped(lambda: os.chroot("/"))


def bare_environment(expected: Collection[str]) -> bool:
    """Check for unexpected environment variables and for open files beyond the first four."""
    opened = 0
    for number in range(4, 256):
        try:
            os.fstat(number)
        except OSError:
            continue
        opened += 1
    variables = set(os.environ)  # noqa: TID251  # the measured object
    return not opened and variables <= set(expected)


def bounded_tasks(bound: int) -> bool:
    """Start sleeping threads until the system refuses; False when `bound` of them started."""
    release = threading.Event()
    started = []
    try:
        for _ in range(bound):
            thread = threading.Thread(target=release.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return True
    finally:
        release.set()
    return False


def fork_some(most: int) -> int:
    """Fork up to `most` sleeping children that hold this process's files; return how many."""
    for count in range(most):
        try:
            pid = os.fork()
        except OSError:
            return count
        if pid == 0:
            threading.Event().wait(60)
            os._exit(0)
    return most


def scratch(size: int) -> bool:
    """Write a small file into the working directory, then try to fill it beyond its size."""
    try:
        _write("small")
    except OSError:
        return False
    block = bytes(min(size, 2**20))

    def fill() -> None:
        for at in range(8):
            with Path(f"large{at}").open("wb", buffering=0) as file:
                for _ in range(size // len(block)):
                    if file.write(block) < len(block):
                        raise OSError("short write")

    return _stopped(fill)
