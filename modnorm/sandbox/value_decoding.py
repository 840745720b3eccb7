"""The trusted half of `jail.encoding`: plain values out of what untrusted code sent.

Nothing but built-in types comes out, so no comparison here ever runs foreign code.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction

_MOST_COLLISIONS = 64
_MOST_DIGITS = 2**16
"""Hexadecimal digits of either part of a fraction: to reduce it takes quadratic time."""

_MOST_PRINTED_BITS = 2**13
"""Python writes no integer of many more."""


class Opaque:
    """A value of a type that does not cross: equal to nothing, itself included.

    Attributes:
        kind: Name of its type.
    """

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class MalformedValueError(ValueError):
    """What arrived is no encoded value: its sender no longer runs the code it was given."""


def decode(encoded: object) -> object:
    """Return the plain value.

    Raises:
        MalformedValueError: it is not an encoded value, or built to make hashing slow.
    """
    try:
        return _decode(encoded)
    except (ValueError, TypeError, ArithmeticError, RecursionError, InvalidOperation) as error:
        raise MalformedValueError(f"not a value: {type(error).__name__}: {error}"[:300]) from error


def _decode(encoded: object) -> object:
    if encoded is None or isinstance(encoded, bool | str):
        return encoded
    if not isinstance(encoded, list) or not encoded or encoded[0] not in _DECODERS:
        raise ValueError("unknown form")
    return _DECODERS[encoded[0]](*encoded[1:])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def _many(items: object) -> list[object]:
    if not isinstance(items, list):
        raise TypeError("list expected")
    return [_decode(item) for item in items]


def _hashable(items: Iterable[object]) -> list[object]:
    """Return items whose hashes do not collide en masse, which would take quadratic time."""
    known = list(items)
    counts = Counter(_Hash(hash(item)) for item in known)
    if counts and max(counts.values()) > _MOST_COLLISIONS:
        raise ValueError("colliding hashes")
    return known


class _Hash:
    """A hash as a key that an attacker cannot make collide: text hashes are randomised."""

    __slots__ = ("_key",)

    def __init__(self, value: int) -> None:
        self._key = str(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hash) and self._key == other._key


def _dict(items: object) -> dict[object, object]:
    pairs = _many(items)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise TypeError("pairs expected")
    entries = [pair for pair in pairs if isinstance(pair, tuple)]
    _hashable(entry[0] for entry in entries)
    return dict(entries)


def _integer(digits: object) -> int:
    return int(_text(digits), 16)


def _part(digits: object) -> int:
    if len(_text(digits)) > _MOST_DIGITS:
        raise ValueError("a fraction that is too long")
    return _integer(digits)


_DECODERS: Mapping[str, Callable[..., object]] = {
    "int": _integer,
    "float": lambda digits: float.fromhex(_text(digits)),
    "complex": lambda real, imaginary: complex(
        float.fromhex(_text(real)), float.fromhex(_text(imaginary))
    ),
    "list": _many,
    "tuple": lambda items: tuple(_many(items)),
    "dict": _dict,
    "set": lambda items: set(_hashable(_many(items))),
    "frozenset": lambda items: frozenset(_hashable(_many(items))),
    "bytes": lambda digits: bytes.fromhex(_text(digits)),
    "deque": lambda items: deque(_many(items)),
    "decimal": lambda digits: Decimal(_text(digits)),
    "fraction": lambda above, below: Fraction(_part(above), _part(below)),
    "opaque": lambda kind: Opaque(_text(kind)),
}


def is_literal(value: object) -> bool:
    """Return whether `repr` writes a plain value as a literal."""
    if isinstance(value, list | tuple | set):
        return value != set() and all(map(is_literal, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_literal, (*value, *value.values())))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= _MOST_PRINTED_BITS
    return value is None or isinstance(value, str | bytes)


def size(value: object) -> int:
    """Return about how many machine words a plain value takes."""
    if type(value) is int:
        return 1 + value.bit_length() // 64
    if isinstance(value, str | bytes):
        return 1 + len(value) // 8
    if isinstance(value, dict):
        return 1 + sum(map(size, value)) + sum(map(size, value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return 1 + sum(map(size, value))
    return 1
