"""Assembled filters in an interpreter: the calls that they allow."""

import errno
import struct

import pytest

from modnorm.sandbox.jail import seccomp
from modnorm.sandbox.jail.seccomp import AllowedCall, Masked, Null, assemble

ARCHITECTURE = 0xC000003E
ALLOW = 0x7FFF0000
EPERM = 0x00050000 | errno.EPERM
KILL = 0x80000000


def _run(program, number, *arguments, architecture=ARCHITECTURE):
    """Interpret classic BPF over the seccomp data of a call."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", number, architecture, 0, *padded)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def test_only_listed_calls_pass():
    program = assemble(ARCHITECTURE, [AllowedCall(1), AllowedCall(7)])
    assert [_run(program, number) for number in (1, 7, 0, 8)] == [ALLOW, ALLOW, EPERM, EPERM]


def test_another_architecture_is_killed():
    program = assemble(ARCHITECTURE, [AllowedCall(1)])
    assert _run(program, 1, architecture=0x40000003) == KILL


@pytest.mark.parametrize(
    ("condition", "argument", "allowed"),
    [
        (Masked(0, (3, 5)), 3, True),
        (Masked(0, (3, 5)), 5, True),
        (Masked(0, (3, 5)), 4, False),
        (Masked(0, (1,), 0xF), 0x81, True),
        (Masked(0, (1,), 0xF), 0x82, False),
        (Masked(0, (0x10,), 0x10), 0x30, True),
        (Masked(0, (0x10,), 0x10), 0x0F, False),
        (Masked(0, ()), 0, False),
        (Null(0), 0, True),
        (Null(0), 1, False),
        (Null(0), 1 << 40, False),
    ],
)
def test_conditions(condition, argument, allowed):
    program = assemble(ARCHITECTURE, [AllowedCall(9, (condition,)), AllowedCall(10)])
    assert _run(program, 9, argument) == (ALLOW if allowed else EPERM)
    assert _run(program, 10, argument) == ALLOW


def test_all_conditions_must_hold_and_the_refusal_is_theirs():
    call = AllowedCall(9, (Masked(0, (1,)), Masked(1, (2,))), refusal=errno.ENOSYS)
    program = assemble(ARCHITECTURE, [call])
    assert _run(program, 9, 1, 2) == ALLOW
    assert _run(program, 9, 1, 3) == 0x00050000 | errno.ENOSYS
    assert _run(program, 9, 2, 2) == 0x00050000 | errno.ENOSYS


@pytest.mark.parametrize(
    ("machine", "forbidden"),
    [
        ("x86_64", {"socket": 41, "connect": 42, "execve": 59, "fork": 57, "vfork": 58,
                    "ptrace": 101, "mount": 165, "chmod": 90, "memfd_create": 319, "bpf": 321,
                    "process_vm_readv": 310, "io_uring_setup": 425, "unshare": 272,
                    "shmget": 29, "openat2": 437, "x32 read": 0x40000000}),
        ("aarch64", {"socket": 198, "connect": 203, "execve": 221, "ptrace": 117, "mount": 40,
                     "memfd_create": 279, "bpf": 280, "process_vm_readv": 270,
                     "io_uring_setup": 425, "unshare": 97, "shmget": 194, "openat2": 437}),
    ],
)  # fmt: skip
def test_forbidden_calls_are_refused(machine, forbidden):
    program = assemble(ARCHITECTURE, seccomp.allowed_calls(machine))
    assert {name: _run(program, number) for name, number in forbidden.items()} == dict.fromkeys(
        forbidden, EPERM
    )


def test_threads_but_no_processes():
    program = assemble(ARCHITECTURE, seccomp.allowed_calls("x86_64"))
    assert _run(program, 56, 0x3D0F00) == ALLOW
    assert _run(program, 56, 0x1200011) == EPERM
    assert _run(program, 435) == 0x00050000 | errno.ENOSYS


def test_no_truncation_without_write_access():
    program = assemble(ARCHITECTURE, seccomp.allowed_calls("x86_64"))
    assert _run(program, 257, 0, 0, 0o1000) == EPERM
    assert _run(program, 257, 0, 0, 0o1001) == ALLOW
    assert _run(program, 257, 0, 0, 0o1002) == ALLOW
    assert _run(program, 257, 0, 0, 0) == ALLOW
    assert _run(program, 257, 0, 0, 2) == ALLOW
