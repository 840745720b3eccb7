"""Functions that a test may apply to the program's answers in this process."""

import ast
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import islice

from modnorm.sandbox.constants import Function, NotConstantError, bounded_number, evaluate
from modnorm.sandbox.value_decoding import Opaque

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


def _isinstance(value: object, types: object) -> object:
    return isinstance(value, types)  # type: ignore[arg-type]  # or TypeError


def _length(value: object) -> object:
    return len(value)  # type: ignore[arg-type]  # or TypeError


def _sum(numbers: Iterable[object]) -> object:
    return sum(map(bounded_number, numbers))  # type: ignore[arg-type]  # numbers or TypeError


def _sorted(values: Iterable[object]) -> object:
    return sorted(values)  # type: ignore[type-var]  # or TypeError


EXAMINING: Mapping[str, Function] = {"isinstance": _isinstance, "type": _type, "len": _length}
"""Functions of values of any type."""

DECIDING: Mapping[str, Callable[[Iterable[object]], object]] = {"all": all, "any": any}
"""Functions of truth values."""

COLLECTING: Mapping[str, Callable[[Iterable[object]], object]] = {
    **DECIDING, "list": list, "tuple": tuple, "sum": _sum, "sorted": _sorted,
}  # fmt: skip
"""Functions of the elements of a comprehension."""


def item(container: object, index: object) -> object:
    """Return an item of a value; raise TypeError or LookupError without it."""
    return container[index]  # type: ignore[index]


def list_of(*items: object) -> object:
    """Return the arguments as a list."""
    return list(items)


def tuple_of(*items: object) -> object:
    """Return the arguments as a tuple."""
    return items


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
    """Return the values that a loop over a constant expression takes.

    Raises:
        NotConstantError: the expression is not constant, or there are too many values.
    """
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
