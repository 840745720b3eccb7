"""The conversation with one program: sends steps, receives values and the warden's report."""

import contextlib
import json
import os
import select
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Self

from modnorm.errors import EngineError, UnavailableError
from modnorm.sandbox.decoding import MalformedValueError, decode
from modnorm.sandbox.jail.jail_messages import (
    READY,
    JailPolicy,
    Mechanism,
    ProgramBounds,
    WardenReport,
    ZygoteStatus,
    pack,
)
from modnorm.sandbox.jail.warden import SETUP_SECONDS
from modnorm.sandbox.program import Limits, Verdict

_PROJECT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from modnorm.sandbox.jail.warden import main; main(sys.argv[1])"
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


def _socket_pair(kind: socket.SocketKind) -> tuple[socket.socket, socket.socket]:
    """Return two sockets that wait; Celery sets a timeout for all new sockets while it stops."""
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for end in pair:
        end.settimeout(None)
    return pair


class ZygoteClient:
    """A running jail."""

    def __init__(self, mechanisms: Collection[Mechanism]) -> None:
        if sys.platform != "linux":
            raise UnavailableError("the sandbox needs Linux", remedy="use a sandbox service")
        self._directory = Path(tempfile.mkdtemp(prefix="modnorm-sandbox-"))
        self._directory.chmod(0o711)
        empty = self._directory / "empty"
        empty.mkdir(mode=0o755)
        self._requests, theirs = _socket_pair(socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-s", "-S", "-P", "-c", _BOOT, _PROJECT]
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                umask=0o022,
            )
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
            raise UnavailableError("the sandbox ended at its start")
        return ZygoteStatus(**json.loads(data))

    def request(self, bounds: ProgramBounds) -> tuple[socket.socket, socket.socket]:
        """Start a program; return the channel to it and the control socket of its warden."""
        channel, program = _socket_pair(socket.SOCK_STREAM)
        control, warden = _socket_pair(socket.SOCK_SEQPACKET)
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
        return self._process.poll() is None

    def close(self) -> None:
        """End the zygote and, with it, all programs."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


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
    """Return the seconds that a process's first thread waited for a core; 0 if unknown."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


_HEADER = struct.Struct(">I")
_CONTROL_BYTES = 65536
_GRACE_SECONDS = 5.0
_ENDING_SECONDS = 1.0
_MAX_WALL_RATIO = 3.0
"""Longest life of a program in multiples of its wall time, if it waits for cores."""


class StoppedError(Exception):
    """The program cannot continue; without a verdict the warden's report decides it."""

    def __init__(self, verdict: Verdict | None, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail


class ProgramSession:
    """One program's process, from its start to its end."""

    report: WardenReport

    def __init__(self, zygote: ZygoteClient, limits: Limits) -> None:
        bounds = ProgramBounds(
            memory_bytes=limits.memory_bytes,
            scratch_bytes=limits.scratch_bytes,
            output_bytes=limits.output_bytes,
            cpu_seconds=limits.wall_seconds,
            life_seconds=_MAX_WALL_RATIO * limits.wall_seconds + _GRACE_SECONDS,
            tasks=zygote.task_limit(limits.tasks),
        )
        self._limits = limits
        self._pid = 0
        self._waited = 0.0
        self._deadline = self._end = 0.0
        self._channel, self._control = zygote.request(bounds)
        self._channel.settimeout(0)

    def __enter__(self) -> Self:
        try:
            message = self._from_warden(time.monotonic() + SETUP_SECONDS + _GRACE_SECONDS)
            self._pid = _ready_pid(message)
        except BaseException:
            self._close()
            raise
        self._deadline = self._now() + self._limits.wall_seconds
        self._end = time.monotonic() + _MAX_WALL_RATIO * self._limits.wall_seconds
        return self

    def __exit__(self, *_: object) -> None:
        """End the program and receive the warden's report."""
        try:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)
            message = self._from_warden(time.monotonic() + _GRACE_SECONDS)
            self.report = WardenReport(**json.loads(message))
        finally:
            self._close()

    def _close(self) -> None:
        self._channel.close()
        self._control.close()

    def _from_warden(self, deadline: float) -> bytes:
        self._control.settimeout(max(0.0, deadline - time.monotonic()))
        try:
            data = self._control.recv(_CONTROL_BYTES)
        except OSError as error:
            raise EngineError(f"a warden does not answer: {error}") from error
        if not data:
            raise EngineError("a warden ended without a report")
        return data

    def duplicate_channel(self) -> socket.socket:
        """Return a duplicate of the channel, which ends when no process holds the other side."""
        return self._channel.dup()

    def run(self, source: str) -> None:
        """Run statements in the program's namespace."""
        self._step({"run": source})

    def ask(self, source: str) -> object:
        """Return the plain value of an expression in the program's namespace."""
        reply = self._step({"value": source})
        try:
            return decode(reply.get("value"))
        except MalformedValueError as error:
            raise StoppedError(Verdict.FAILED, str(error)) from error

    def _step(self, request: dict[str, str]) -> dict[str, object]:
        deadline = min(self._now() + self._limits.step_seconds, self._deadline)
        data = json.dumps(request).encode()
        self._send(_HEADER.pack(len(data)) + data, deadline)
        header = self._receive(_HEADER.size, deadline)
        (size,) = _HEADER.unpack(header)
        if size > self._limits.memory_bytes:
            raise StoppedError(
                Verdict.FAILED,
                "the program does not speak the sandbox's protocol: "
                f"its answer begins with {header!r}",
            )
        if size > self._limits.output_bytes:
            raise StoppedError(Verdict.OUTPUT, f"an answer of {size} bytes")
        try:
            reply = json.loads(self._receive(size, deadline))
        except (ValueError, RecursionError) as error:
            raise StoppedError(Verdict.FAILED, "the answer is not JSON") from error
        if not isinstance(reply, dict):
            raise StoppedError(Verdict.FAILED, "the answer is not an object")
        if "raised" in reply:
            verdict = Verdict.MEMORY if reply.get("memory") else Verdict.FAILED
            raise StoppedError(verdict, str(reply["raised"])[:500])
        return reply

    def _await(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._channel, event)
        poll.register(self._control, select.POLLIN)
        ready = dict(poll.poll(0))
        while not ready:
            ready = dict(poll.poll(self._remaining(deadline) * 1000))
        if self._channel.fileno() not in ready:
            raise StoppedError(None, "the program ended")

    def _now(self) -> float:
        """Return the time on a clock that stops while the program waits for a core.

        The kernel's count goes with the process. Then the clock must not jump to a deadline.
        """
        self._waited = max(self._waited, cpu_wait_seconds(self._pid))
        return time.monotonic() - self._waited

    def _remaining(self, deadline: float) -> float:
        """Return the longest wait in seconds before the next check."""
        remaining, life = deadline - self._now(), self._end - time.monotonic()
        if remaining <= 0:
            whole = f"not done after {self._limits.wall_seconds:g} s"
            is_last = deadline == self._deadline
            raise StoppedError(Verdict.TIMEOUT, whole if is_last else "a step took too long")
        if life <= 0:
            raise EngineError("the machine is too busy: a program does not get its CPU time")
        return min(remaining, life)

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._await(select.POLLOUT, deadline)
            try:
                view = view[self._channel.send(view) :]
            except OSError as error:
                raise self._closed() from error

    def _receive(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._await(select.POLLIN, deadline)
            try:
                part = self._channel.recv(size - len(data))
            except OSError as error:
                raise self._closed() from error
            if not part:
                raise self._closed()
            data += part
        return bytes(data)

    def _closed(self) -> StoppedError:
        """Return the error for a closed channel, after the program's process has ended.

        A process's files close before it can be waited for. Dismissing it now would hide why it
        ended.
        """
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.poll(_ENDING_SECONDS * 1000)
        return StoppedError(None, "the program closed its channel")


def _ready_pid(message: bytes) -> int:
    if not message.startswith(READY):
        reason = WardenReport(**json.loads(message)).printed[-500:]
        raise EngineError(f"the isolation of a program was not set up: {reason}")
    return int(message.removeprefix(READY))
