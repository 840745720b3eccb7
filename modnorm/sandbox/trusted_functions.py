"""Functions that a test may apply to the program's answers in this process."""

import ast
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import islice

from modnorm.sandbox.constants import Function, NotConstantError, bounded_number, evaluate

_MAX_COLLISIONS = 64
_MAX_DIGITS = 2**16
"""Hexadecimal digits of a numerator or denominator; reducing a fraction takes quadratic time."""

_MAX_PRINTED_BITS = 2**13
"""Python refuses to print integers of many more bits."""


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
    """Return items, if few of their hashes collide; many would take quadratic time."""
    checked = list(items)
    counts = Counter(_Hash(hash(item)) for item in checked)
    if counts and max(counts.values()) > _MAX_COLLISIONS:
        raise ValueError("colliding hashes")
    return checked


class _Hash:
    """A hash as a dictionary key. Its own hash is that of a text, which is randomised."""

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


def is_literal(value: object) -> bool:
    """Whether `repr` of a plain value is a literal."""
    if isinstance(value, list | tuple | set):
        return value != set() and all(map(is_literal, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_literal, (*value, *value.values())))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return value.bit_length() <= _MAX_PRINTED_BITS
    return value is None or isinstance(value, str | bytes)


def size(value: object) -> int:
    """Return the approximate size of a plain value in machine words."""
    if type(value) is int:
        return 1 + value.bit_length() // 64
    if isinstance(value, str | bytes):
        return 1 + len(value) // 8
    if isinstance(value, dict):
        return 1 + sum(map(size, value)) + sum(map(size, value.values()))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return 1 + sum(map(size, value))
    return 1


_LARGEST_RANGE = 2**16
_LARGEST_LOOP = 2**10
"""Longest `zip` or `enumerate`, whose length the test's text does not bound."""

_TYPES: Mapping[str, type] = {
    "bool": bool, "int": int, "float": float, "complex": complex, "str": str, "bytes": bytes,
    "list": list, "tuple": tuple, "dict": dict, "set": set, "frozenset": frozenset,
    "deque": deque, "collections.deque": deque, "Decimal": Decimal, "decimal.Decimal": Decimal,
    "Fraction": Fraction, "fractions.Fraction": Fraction,
}  # fmt: skip
"""The types that the program can send."""

_VIEWS: Mapping[str, Callable[[dict[object, object]], Iterable[object]]] = {
    "items": dict.items, "keys": dict.keys, "values": dict.values,
}  # fmt: skip


def _type(value: object) -> object:
    return value if isinstance(value, Opaque) else type(value)


def _sum(numbers: Iterable[object]) -> object:
    return sum(map(bounded_number, numbers))  # type: ignore[arg-type]  # numbers or TypeError


EXAMINING: Mapping[str, Function] = {"isinstance": isinstance, "type": _type, "len": len}

DECIDING: Mapping[str, Function] = {"all": all, "any": any}

COLLECTING: Mapping[str, Function] = {
    **DECIDING, "list": list, "tuple": tuple, "sum": _sum, "sorted": sorted,
}  # fmt: skip
"""Functions of the elements of a comprehension."""


def types_of(node: ast.expr, shadowed: Collection[str] = ()) -> object | None:
    """Return a type by its name, or a list or tuple of types; None for anything else."""
    match node:
        case ast.Name() | ast.Attribute() if (name := ast.unparse(node)) not in shadowed:
            return _TYPES.get(name)
        case ast.List(elts=[_, *_] as parts) | ast.Tuple(elts=[_, *_] as parts):
            types = [types_of(part, shadowed) for part in parts]
            return None if None in types else types if isinstance(node, ast.List) else tuple(types)
    return None


def items(node: ast.expr, shadowed: Collection[str] = ()) -> Sequence[object]:
    """Return the values that a loop over a constant expression takes."""
    try:
        return _items(node, shadowed)
    except (ValueError, TypeError, OverflowError) as error:
        raise NotConstantError(str(error)) from error


def _items(node: ast.expr, shadowed: Collection[str]) -> Sequence[object]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in shadowed:
            raise NotConstantError(name)
        case ast.Call(func=ast.Name(id="range"), args=bounds, keywords=[]):
            ends = [evaluate(each, shadowed) for each in bounds]
            numbers = range(*ends)  # type: ignore[call-overload]  # or TypeError
            return _bounded(numbers, _LARGEST_RANGE)
        case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as parts, keywords=[]):
            pairs = zip(*(_items(each, shadowed) for each in parts), strict=False)
            return _bounded(tuple(islice(pairs, _LARGEST_LOOP + 1)), _LARGEST_LOOP)
        case ast.Call(func=ast.Name(id="enumerate"), args=[part], keywords=[]):
            return tuple(enumerate(_bounded(_items(part, shadowed), _LARGEST_LOOP)))
        case ast.Call(func=ast.Attribute(value=mapping, attr=view), args=[], keywords=[]):
            if view in _VIEWS:
                return tuple(_VIEWS[view](evaluate(mapping, shadowed)))  # type: ignore[arg-type]
    return tuple(evaluate(node, shadowed))  # type: ignore[arg-type]  # or TypeError


def _bounded(values: Sequence[object], largest: int) -> Sequence[object]:
    if len(values) > largest:
        raise NotConstantError(f"more than {largest} values")
    return values
