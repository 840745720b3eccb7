"""Starts the zygote process and requests program processes from it."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

from modnorm.errors import EngineError, UnavailableError
from modnorm.sandbox.jail.jail_messages import (
    JailPolicy,
    Mechanism,
    ProgramBounds,
    ZygoteStatus,
    pack,
)

_PROJECT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from modnorm.sandbox.jail.zygote import main; main(sys.argv[1])"
)
ENVIRONMENT = {
    "HOME": "/scratch",
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "PATH": "",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TMPDIR": "/scratch",
}
"""Environment of the zygote. The fixed hash seed makes verdicts independent of set order; one
allocation arena saves address space."""
_START_SECONDS = 30.0


def _readable() -> Sequence[str]:
    """Return the paths that an interpreter reads: its library and the system's shared objects."""
    library = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    system = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/etc/localtime")
    return tuple(dict.fromkeys((*system, *library, "/usr/share/zoneinfo")))


class ZygoteClient:
    """A running jail."""

    def __init__(self, mechanisms: Collection[Mechanism]) -> None:
        """Start a jail.

        Raises:
            UnavailableError: the jail did not start.
        """
        if sys.platform != "linux":
            raise UnavailableError("the sandbox needs Linux", remedy="use a sandbox service")
        self._directory = Path(tempfile.mkdtemp(prefix="modnorm-sandbox-"))
        self._directory.chmod(0o711)
        empty = self._directory / "empty"
        empty.mkdir(mode=0o755)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = _start(theirs)
        policy = JailPolicy(sorted(mechanisms), _readable(), str(empty))
        try:
            self.status = self._receive_status(policy)
        except BaseException:
            self.close()
            raise

    def _receive_status(self, policy: JailPolicy) -> ZygoteStatus:
        self._requests.settimeout(_START_SECONDS)
        try:
            self._requests.send(pack(policy))
            data = self._requests.recv(65536)
        except OSError as error:
            raise UnavailableError(f"the sandbox did not start: {error}") from error
        if not data:
            raise UnavailableError(
                "the sandbox ended at its start", remedy="read its log for the reason"
            )
        return ZygoteStatus(**json.loads(data))

    def request(self, bounds: ProgramBounds) -> tuple[socket.socket, socket.socket]:
        """Start a program's process.

        Returns:
            The channel to the untrusted program, and the control socket of its trusted warden.

        Raises:
            EngineError: the zygote has died.
        """
        channel, program = socket.socketpair()
        control, warden = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with program, warden:
            try:
                files = [program.fileno(), warden.fileno()]
                socket.send_fds(self._requests, [pack(bounds)], files)
            except OSError as error:
                channel.close()
                control.close()
                raise EngineError(f"the sandbox has died: {error}") from error
        return channel, control

    def task_limit(self, own: int) -> int:
        """Return the RLIMIT_NPROC that allows a program its own tasks.

        The kernel counts all tasks of a uid, so the tasks of a shared uid are added.
        """
        return own if Mechanism.OWN_UID in self.status.mechanisms else own + tasks_of_user()

    @property
    def alive(self) -> bool:
        """Whether the zygote still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the zygote and, with it, all programs."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _start(requests: socket.socket) -> subprocess.Popen[bytes]:
    """Start the bare interpreter: -I without -E, because PYTHONHASHSEED must apply."""
    command = [sys.executable, "-s", "-S", "-P", "-c", _BOOT, _PROJECT]
    return subprocess.Popen(
        command,
        stdin=requests.fileno(),
        stdout=subprocess.DEVNULL,
        env=ENVIRONMENT,
        cwd="/",
        start_new_session=True,
        umask=0o022,
    )


def tasks_of_user() -> int:
    """Count the threads of this user, which RLIMIT_NPROC includes if the uid is shared."""
    uid = os.getuid()
    count = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == uid:
                count += sum(1 for _ in (entry / "task").iterdir())
    return count


def cpu_wait_seconds(pid: int) -> float:
    """Return the seconds that a process's first thread was ready to run but had no core.

    0 if the kernel does not report it.
    """
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
