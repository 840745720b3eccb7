"""A seccomp filter from an allow list, as classic BPF.

Calls that are not listed fail with EPERM, so that libraries can probe for a call and continue.
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import errno
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_EQUAL = 0x15
_JUMP_ANY_BIT = 0x45
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000

_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENTS_OFFSET = 16


@dataclass(frozen=True)
class Masked:
    """Condition on a system call: an argument's low 32 bits, masked, are one of `values`.

    If negated, they are none of them.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    negated: bool = False


@dataclass(frozen=True)
class AnyBit:
    """Condition on a system call: an argument's low 32 bits share a bit with a mask."""

    argument: int
    mask: int


@dataclass(frozen=True)
class Null:
    """Condition on a system call: all 64 bits of an argument are zero."""

    argument: int


Condition = Masked | AnyBit | Null


@dataclass(frozen=True)
class AllowedCall:
    """A system call that is allowed when all its conditions hold.

    Attributes:
        number: Number of the call on this machine.
        conditions: Conditions on its arguments.
        refusal: Errno if a condition fails.
    """

    number: int
    conditions: Sequence[Condition] = ()
    refusal: int = errno.EPERM


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value & 0xFFFFFFFF)


def _low_word(argument: int) -> bytes:
    return _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8 * argument)


def _high_word(argument: int) -> bytes:
    return _instruction(_LOAD_WORD, _ARGUMENTS_OFFSET + 8 * argument + 4)


def _skip_refusal(body: bytes, code: int, value: int, *, when: bool, refuse: bytes) -> bytes:
    jump = _instruction(code, value, int(when), int(not when))
    return body + jump + refuse


def _test(condition: Condition, refuse: bytes) -> bytes:
    """Return code that continues if the condition holds, and refuses otherwise."""
    body = _low_word(condition.argument)
    if isinstance(condition, AnyBit):
        return _skip_refusal(body, _JUMP_ANY_BIT, condition.mask, when=True, refuse=refuse)
    if isinstance(condition, Null):
        low = _skip_refusal(body, _JUMP_EQUAL, 0, when=True, refuse=refuse)
        high = _high_word(condition.argument)
        return low + _skip_refusal(high, _JUMP_EQUAL, 0, when=True, refuse=refuse)
    body += _instruction(_AND, condition.mask)
    if condition.negated:
        for value in condition.values:
            body = _skip_refusal(body, _JUMP_EQUAL, value, when=False, refuse=refuse)
        return body
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
    """Assemble a filter.

    Args:
        architecture: AUDIT_ARCH value; a call of another architecture kills the process.
        calls: Allowed calls; the first entry of a number decides.

    Returns:
        Instructions of 8 bytes each.
    """
    program = _instruction(_LOAD_WORD, _ARCHITECTURE_OFFSET)
    program += _instruction(_JUMP_EQUAL, architecture, 1, 0)
    program += _instruction(_RETURN, _KILL_PROCESS)
    program += _instruction(_LOAD_WORD, _NUMBER_OFFSET)
    program += b"".join(_allow(call) for call in calls)
    return program + _instruction(_RETURN, _ERRNO | errno.EPERM)
