"""The warden of one program: forks it, confines it, watches it, kills it and reports.

The program runs in another process and cannot reach the warden: the warden's pid is not in its
namespace, its uid differs, or its system calls exclude signals and tracing.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from modnorm.sandbox.jail import confinement, interpreter, kernel, seccomp
from modnorm.sandbox.jail.jail_messages import (
    READY,
    EndReason,
    JailPolicy,
    Mechanism,
    ProgramBounds,
    WardenReport,
    ZygoteStatus,
    pack,
)

SETUP_SECONDS = 10.0
_TAIL_BYTES = 4096
_FREE_DESCRIPTOR = 16
"""A program keeps no file descriptor with this number or a higher one."""


@dataclass(frozen=True)
class Jail:
    """The configuration that all programs of a zygote share."""

    policy: JailPolicy
    """With the mechanisms that work here."""
    idle_bytes: int


@dataclass
class _Printed:
    count: int = 0
    tail: bytes = b""

    def add(self, data: bytes) -> None:
        self.count += len(data)
        self.tail = (self.tail + data)[-_TAIL_BYTES:]


@dataclass
class _Watch:
    """A running program."""

    pid: int
    output: int
    ready: int
    printed: _Printed = field(default_factory=_Printed)


def supervise(jail: Jail, bounds: ProgramBounds, control: socket.socket, channel: int) -> None:
    """Run one program and report its end on the control socket."""
    uid = confinement.own_uid() if Mechanism.OWN_UID in jail.policy.mechanisms else os.geteuid()
    if Mechanism.NAMESPACES in jail.policy.mechanisms:
        confinement.enter_program_namespaces(bounds, uid)
    output_read, output_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(output_read)
        os.close(ready_read)
        _become_program(jail, bounds, uid, (channel, output_write, ready_write))
    os.close(output_write)
    os.close(ready_write)
    watch = _Watch(pid, output_read, ready_read)
    os.close(channel)
    end = _await_ready(watch, control) or _await_end(watch, control, bounds)
    for kill in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError):
            kill(watch.pid, signal.SIGKILL)
    _, status, usage = os.wait4(watch.pid, 0)
    os.set_blocking(watch.output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(watch.output, 65536):
            watch.printed.add(data)
    if end is not EndReason.SETUP and watch.printed.count > bounds.output_bytes:
        end = EndReason.OUTPUT
    report = _report(end, status, usage.ru_utime + usage.ru_stime, watch.printed)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        control.send(pack(report))


def _become_program(
    jail: Jail, bounds: ProgramBounds, uid: int, files: tuple[int, int, int]
) -> None:
    """Turn a fork of the warden into the program; never returns."""
    ready = -1
    try:
        os.setsid()
        ready = _place_files(*files)
        os.umask(0o077)
        confinement.confine_program(jail.policy, bounds, uid=uid, idle_bytes=jail.idle_bytes)
        os.write(ready, READY)
        os.close(ready)
    except BaseException as error:  # noqa: BLE001  # a fork must not return into the caller's stack
        os.write(ready, f"{type(error).__name__}: {error}".encode(errors="replace")[:2000])
        os._exit(1)
    try:
        interpreter.serve()
    finally:
        os._exit(1)


def _place_files(channel: int, output: int, ready: int) -> int:
    """Redirect the descriptors and return the ready pipe's.

    0 reads /dev/null, 1 and 2 write to the output pipe, 3 is the channel, 4 the ready pipe. All
    others are closed.
    """
    copies = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FREE_DESCRIPTOR)
        for descriptor in (channel, output, ready)
    ]
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(copies[1], 1)
    os.dup2(copies[1], 2)
    os.dup2(copies[0], interpreter.CHANNEL)
    os.dup2(copies[2], interpreter.CHANNEL + 1)
    os.closerange(interpreter.CHANNEL + 2, os.sysconf("SC_OPEN_MAX"))
    return interpreter.CHANNEL + 1


def _await_ready(watch: _Watch, control: socket.socket) -> EndReason | None:
    """Wait until the program is confined and tell the caller; return SETUP if that fails."""
    readable, _, _ = select.select([watch.ready], [], [], SETUP_SECONDS)
    message = os.read(watch.ready, 2000) if readable else b"the set-up took too long"
    if message != READY:
        watch.printed.add(message or b"the process died during the set-up")
        return EndReason.SETUP
    control.send(READY + b" %d" % watch.pid)
    return None


def _await_end(watch: _Watch, control: socket.socket, bounds: ProgramBounds) -> EndReason:
    deadline = time.monotonic() + bounds.life_seconds
    process = os.pidfd_open(watch.pid)
    poll = select.poll()
    for descriptor in (watch.output, control.fileno(), process):
        poll.register(descriptor, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        ready = dict(poll.poll(left * 1000))
        if watch.output in ready:
            data = os.read(watch.output, 65536)
            watch.printed.add(data)
            if watch.printed.count > bounds.output_bytes:
                return EndReason.OUTPUT
            if not data:
                poll.unregister(watch.output)
        if process in ready:
            return EndReason.EXIT
        if control.fileno() in ready:
            return EndReason.DISMISSED
    return EndReason.WALL


def _report(end: EndReason, status: int, cpu_seconds: float, printed: _Printed) -> WardenReport:
    text = printed.tail.decode(errors="replace")
    if end is not EndReason.EXIT:
        return WardenReport(end, 0, cpu_seconds, text)
    if os.WIFSIGNALED(status):
        return WardenReport(EndReason.SIGNAL, os.WTERMSIG(status), cpu_seconds, text)
    return WardenReport(EndReason.EXIT, os.WEXITSTATUS(status), cpu_seconds, text)


PRELOADED = (
    "abc", "array", "bisect", "calendar", "cmath", "collections",
    "contextlib", "copy", "ctypes", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "hashlib", "heapq", "io",
    "itertools", "json", "math", "numbers", "operator", "os",
    "queue", "random", "re", "statistics", "string", "struct",
    "sys", "textwrap", "threading", "time", "types", "typing",
)  # fmt: skip
"""Modules that programs usually import. They are loaded once, so later imports are look-ups."""


def _refusal(attempt: Callable[[], object]) -> str | None:
    """Try an action in a fork, so that it has no effect here; return the error, None without."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001  # a fork must not return into the caller's stack
            os.write(writing, (str(error) or type(error).__name__).encode(errors="replace")[:500])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read()
    _, status = os.waitpid(pid, 0)
    return message.decode(errors="replace") or (
        f"the attempt ended with status {status}" if status else None
    )


def _try_namespaces(policy: JailPolicy) -> None:
    confinement.enter_namespaces(policy)
    confinement.enter_program_namespaces(
        ProgramBounds(2**20, 2**20, 2**20, 1.0, 1.0, 1), os.geteuid()
    )


def _try_reading(policy: JailPolicy) -> None:
    """Read what programs need as another uid, by the host's own directories."""
    needed = [path for path in (*policy.readable, policy.empty_directory) if Path(path).exists()]
    confinement.become(confinement.own_uid())
    for path in needed:
        if not os.access(path, os.R_OK):
            raise PermissionError(f"another uid cannot read {path}, which programs need")


def _try_landlock() -> None:
    kernel.forbid_new_privileges()
    confinement.restrict([])


def _try_seccomp() -> None:
    if not seccomp.supported():
        raise OSError("the system call numbers of this machine are unknown")
    kernel.forbid_new_privileges()
    seccomp.restrict()


def _confine_zygote(policy: JailPolicy) -> ZygoteStatus:
    """Find out which mechanisms work here and apply those that all programs share."""
    wanted = [Mechanism(name) for name in policy.mechanisms]
    attempts: dict[Mechanism, Callable[[], object]] = {
        Mechanism.OWN_UID: lambda: confinement.become(confinement.own_uid()),
        Mechanism.NAMESPACES: lambda: _try_namespaces(policy),
        Mechanism.SECCOMP: _try_seccomp,
        Mechanism.LANDLOCK: _try_landlock,
    }
    errors = {mechanism: _refusal(attempts[mechanism]) for mechanism in wanted}
    works = {mechanism for mechanism, error in errors.items() if error is None}
    if Mechanism.OWN_UID in works and Mechanism.NAMESPACES not in works:
        errors[Mechanism.OWN_UID] = _refusal(lambda: _try_reading(policy))
    refusals = {name.value: error for name, error in errors.items() if error is not None}
    achieved = [mechanism for mechanism in wanted if mechanism not in refusals]
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")
    if Mechanism.NAMESPACES in achieved:
        confinement.enter_namespaces(policy)
    kernel.forbid_new_privileges()
    return ZygoteStatus(achieved, refusals, confinement.abi())


def _fork_warden(jail: Jail, requests: socket.socket, data: bytes, files: list[int]) -> None:
    zygote = os.getpid()
    if os.fork() != 0:
        return
    try:
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        channel, control = files
        with socket.socket(fileno=control) as connection:
            supervise(jail, ProgramBounds(**json.loads(data)), connection, channel)
    except BaseException:  # noqa: BLE001  # a fork must not return into the zygote's loop
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(project: str) -> None:
    """Serve requests on standard input, a socket, until it is closed."""
    for name in PRELOADED:
        importlib.import_module(name)
    sys.path.remove(project)
    requests = socket.socket(fileno=0)
    policy = JailPolicy(**json.loads(requests.recv(65536)))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    idle_bytes = pages * resource.getpagesize() + 64 * 2**20
    status = _confine_zygote(policy)
    requests.send(pack(status))
    jail = Jail(replace(policy, mechanisms=status.mechanisms), idle_bytes)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(requests, 65536, 2)
        if not data:
            return
        _fork_warden(jail, requests, data, files)
        for descriptor in files:
            os.close(descriptor)
