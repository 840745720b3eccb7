"""A warm, fenced interpreter that forks a warden for every program and runs no program itself."""

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

from modnorm.sandbox.jail import confinement, kernel, landlock, seccomp
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
"""What honest programs import: loaded once, so that a program's import is a look-up."""


def _refusal(attempt: Callable[[], object]) -> str | None:
    """Try something in a fork, which keeps its effects; return why it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except OSError as error:
            os.write(writing, str(error).encode()[:500] or b"refused")
        except BaseException:  # noqa: BLE001  # a fork must not return into the caller's stack
            os.write(writing, traceback.format_exc().encode()[-500:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return said.decode() or (f"the attempt ended with status {status}" if status else None)


def _attempts(policy: JailPolicy) -> dict[Mechanism, Callable[[], object]]:
    return {
        Mechanism.OWN_UID: lambda: confinement.become(confinement.own_uid()),
        Mechanism.NAMESPACES: lambda: _try_namespaces(policy),
        Mechanism.SECCOMP: _try_seccomp,
        Mechanism.LANDLOCK: _try_landlock,
    }


def _try_namespaces(policy: JailPolicy) -> None:
    confinement.enter_namespaces(policy)
    confinement.enter_program_namespaces(
        ProgramBounds(2**20, 2**20, 2**20, 1.0, 1.0, 1), os.geteuid()
    )


def _try_landlock() -> None:
    kernel.forbid_new_privileges()
    landlock.restrict([])


def _try_seccomp() -> None:
    if not seccomp.supported():
        raise OSError("the numbers of this machine's system calls are not known")
    kernel.forbid_new_privileges()
    seccomp.restrict()


def _settle(policy: JailPolicy) -> ZygoteStatus:
    """Find out which fences hold here and put up those that all programs share."""
    wanted = [Mechanism(name) for name in policy.mechanisms]
    attempts = _attempts(policy)
    refusals = {each: why for each in wanted if (why := _refusal(attempts[each])) is not None}
    achieved = [each for each in wanted if each not in refusals]
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")
    if Mechanism.NAMESPACES in achieved:
        confinement.enter_namespaces(policy)
    kernel.forbid_new_privileges()
    return ZygoteStatus(
        achieved, {each.value: why for each, why in refusals.items()}, landlock.abi()
    )


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
    """Serve requests on standard input, a socket, until it is closed.

    Args:
        project: Directory that was added to `sys.path` for this module's sake.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    sys.path.remove(project)
    requests = socket.socket(fileno=0)
    policy = JailPolicy(**json.loads(requests.recv(65536)))
    idle_bytes = _idle_bytes()
    status = _settle(policy)
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
        for each in files:
            os.close(each)
