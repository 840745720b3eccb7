"""Decodes the program's answers to plain values."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction

_MAX_COLLISIONS = 64
_MAX_DIGITS = 2**16
"""Hexadecimal digits of a numerator or denominator; reducing a fraction takes quadratic time."""


class Opaque:
    """A value of a type that cannot be sent. It equals nothing, not even itself."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.kind}>"


class MalformedValueError(ValueError):
    """The data are no encoded value: the program has replaced the sending code."""


def decode(encoded: object) -> object:
    """Return the plain value of an encoded one."""
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
    """Return items, if few of their hashes collide; many would take quadratic time.

    The hashes are counted as texts, whose own hashes are randomised.
    """
    checked = list(items)
    counts = Counter(str(hash(item)) for item in checked)
    if counts and max(counts.values()) > _MAX_COLLISIONS:
        raise ValueError("colliding hashes")
    return checked


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
    if len(_text(digits)) > _MAX_DIGITS:
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
