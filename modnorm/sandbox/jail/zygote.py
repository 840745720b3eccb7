"""A warm, confined interpreter that forks a warden for every program and runs none itself."""

import contextlib
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from modnorm.sandbox.jail import confinement, kernel, seccomp
from modnorm.sandbox.jail.jail_messages import (
    JailPolicy,
    Mechanism,
    ProgramBounds,
    ZygoteStatus,
    pack,
)
from modnorm.sandbox.jail.warden import Jail, supervise

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


def _idle_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize() + 64 * 2**20


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
    idle_bytes = _idle_bytes()
    status = _confine_zygote(policy)
    requests.send(pack(status))
    jail = Jail(policy, frozenset(Mechanism(name) for name in status.mechanisms), idle_bytes)
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
