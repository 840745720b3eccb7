"""The system calls that a program may make: for computing, its own files and its own threads.

Forbidden are sockets except connected pairs, new processes, execution, signals to others, changes
of ownership or modes, and shared memory outside its address space.
"""

import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from modnorm.sandbox.jail import kernel

_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_EQUAL = 0x15
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENTS_OFFSET = 16


@dataclass(frozen=True)
class Masked:
    """Condition on a system call: an argument's low 32 bits, masked, are in `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True)
class Null:
    """Condition on a system call: all 64 bits of an argument are zero."""

    argument: int


Condition = Masked | Null


@dataclass(frozen=True)
class AllowedCall:
    """A system call that is allowed when all its conditions hold."""

    number: int
    conditions: Sequence[Condition] = ()
    refusal: int = errno.EPERM
    """Errno if a condition fails."""


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _test(condition: Condition, refuse: bytes) -> bytes:
    """Return code that continues if the condition holds, and refuses otherwise."""
    place = _ARGUMENTS_OFFSET + 8 * condition.argument
    body = _instruction(_LOAD_WORD, place)
    if isinstance(condition, Null):
        is_zero = _instruction(_JUMP_EQUAL, 0, 1, 0) + refuse
        return body + is_zero + _instruction(_LOAD_WORD, place + 4) + is_zero
    body += _instruction(_AND, condition.mask)
    remaining = len(condition.values)
    for value in condition.values:
        body += _instruction(_JUMP_EQUAL, value, remaining, 0)
        remaining -= 1
    return body + refuse


def _allow(call: AllowedCall) -> bytes:
    refuse = _instruction(_RETURN, _ERRNO | call.refusal)
    body = b"".join(_test(condition, refuse) for condition in call.conditions)
    body += _instruction(_RETURN, _ALLOW)
    return _instruction(_JUMP_EQUAL, call.number, 0, len(body) // 8) + body


def assemble(architecture: int, calls: Iterable[AllowedCall]) -> bytes:
    """Return a filter of instructions of 8 bytes each."""
    program = _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET)
    program += _instruction(_JUMP_EQUAL, architecture, 1, 0)
    program += _instruction(_RETURN, _KILL_PROCESS)
    program += _instruction(_LOAD_WORD, _NUMBER_OFFSET)
    program += b"".join(_allow(call) for call in calls)
    return program + _instruction(_RETURN, _ERRNO | errno.EPERM)


_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}

_PLAIN: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66),
    "pread64": (17, 67), "pwrite64": (18, 68), "lseek": (8, 62), "sendfile": (40, 71),
    "copy_file_range": (326, 285), "close": (3, 57), "close_range": (436, 436),
    "fstat": (5, 80), "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None),
    "statx": (332, 291), "statfs": (137, 43), "fstatfs": (138, 44), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "creat": (85, None), "ftruncate": (77, 46), "fallocate": (285, 47),
    "umask": (95, 166), "flock": (73, 32), "fsync": (74, 82),
    "fdatasync": (75, 83), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73),
    "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None),
    "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "eventfd2": (290, 19), "recvfrom": (45, 207),
    "getsockname": (51, 204), "getpeername": (52, 205), "getsockopt": (55, 209),
    "shutdown": (48, 210),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216),
    "madvise": (28, 233), "brk": (12, 214), "membarrier": (324, 283),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133),
    "rt_sigpending": (127, 136), "restart_syscall": (219, 128),
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "set_tid_address": (218, 96), "rseq": (334, 293), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "getcpu": (309, 168), "arch_prctl": (158, None),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "times": (100, 153), "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None),
    "pause": (34, None), "getrandom": (318, 278),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150),
    "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "uname": (63, 160), "sysinfo": (99, 179), "getrlimit": (97, 163), "getrusage": (98, 165),
    "wait4": (61, 260), "waitid": (247, 95), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
"""Calls allowed with any arguments: their numbers on x86_64 and on aarch64."""

_CLONE3 = 435
"""Its number on every machine."""
_CLONE_THREAD = 0x10000
_AF_UNIX = 1
_SOCK_STREAM = 1
_SOCK_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_TERMINAL_AND_FD_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_HARMLESS_PRCTLS = (15, 16, 21, 39)
"""PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_GET_NO_NEW_PRIVS."""
_HARMLESS_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
"""F_DUPFD to F_SETFL, locks, F_DUPFD_CLOEXEC, F_GETPIPE_SZ. F_SETOWN and F_SETSIG are excluded:
with them a file that becomes ready sends any signal to any process of the uid."""


def _no_silent_truncation(argument: int) -> Masked:
    """Refuse O_TRUNC without write access, which Landlock before version 3 allows."""
    modes = range(os.O_ACCMODE + 1)
    writing = (os.O_TRUNC | mode for mode in modes[1:])
    return Masked(argument, (*modes, *writing), os.O_TRUNC | os.O_ACCMODE)


def _conditional() -> list[tuple[tuple[int | None, int | None], tuple[Condition, ...]]]:
    """Return the numbers and the conditions of other calls."""
    own_process = Masked(0, (os.getpid(),))
    any_stream = Masked(1, (_SOCK_STREAM,), ~_SOCK_FLAGS & 0xFFFFFFFF)
    return [
        ((2, None), (_no_silent_truncation(1),)),  # open
        ((257, 56), (_no_silent_truncation(2),)),  # openat
        ((56, 220), (Masked(0, (_CLONE_THREAD,), _CLONE_THREAD),)),  # clone
        ((62, 129), (own_process,)),  # kill
        ((234, 131), (own_process,)),  # tgkill
        ((157, 167), (Masked(0, _HARMLESS_PRCTLS),)),  # prctl
        ((302, 261), (Masked(0, (0,)),)),  # prlimit64
        ((16, 29), (Masked(1, _TERMINAL_AND_FD_IOCTLS),)),  # ioctl
        ((72, 25), (Masked(1, _HARMLESS_FCNTLS),)),  # fcntl
        ((53, 199), (Masked(0, (_AF_UNIX,)), any_stream)),  # socketpair
        ((44, 206), (Null(4),)),  # sendto
    ]


def supported() -> bool:
    """Whether the numbers of this machine's system calls are known."""
    return platform.machine() in _AUDIT_ARCH


def allowed_calls(machine: str) -> list[AllowedCall]:
    """Return the calls that the filter allows to the calling process."""
    column = _COLUMN[machine]
    calls = [
        AllowedCall(number, conditions)
        for pair, conditions in (*((pair, ()) for pair in _PLAIN.values()), *_conditional())
        if (number := pair[column]) is not None
    ]
    return [*calls, AllowedCall(_CLONE3, (Masked(0, ()),), errno.ENOSYS)]


def restrict() -> None:
    """Filter the calling process for good. clone3 fails with ENOSYS, so libc uses clone."""
    machine = platform.machine()
    kernel.install_filter(assemble(_AUDIT_ARCH[machine], allowed_calls(machine)))
