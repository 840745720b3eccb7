"""Evaluates constant expressions without `eval`: literals and a few pure functions."""

import ast
import builtins
import cmath
import math
import operator
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from fractions import Fraction

Function = Callable[..., object]
Comparison = Callable[[object, object], object]

_LARGEST_BITS = 2**16
_LARGEST_COUNT = 2**16
_LARGEST_EXPONENT = 400
"""Exceeds every float's. `int` and `Fraction` write out as many digits as the exponent states."""


class NotConstantError(ValueError):
    """The expression is not constant: only the program can evaluate it."""


def _contains(item: object, container: object) -> bool:
    return operator.contains(container, item)  # type: ignore[arg-type]  # or TypeError


def _is_same(left: object, right: object) -> bool:
    return left is right or (type(left) is type(right) and left == right)


COMPARISONS: Mapping[type[ast.cmpop], Comparison] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,  # type: ignore[dict-item]  # or TypeError
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
    ast.In: _contains,
    ast.NotIn: lambda item, container: not _contains(item, container),
    ast.Is: _is_same,
    ast.IsNot: lambda left, right: not _is_same(left, right),
}


def _power(base: object, exponent: object) -> object:
    match base, exponent:
        case int(), int() if base.bit_length() * abs(exponent) > _LARGEST_BITS:
            raise ValueError("the power is too large")
    return base**exponent  # type: ignore[operator]  # or TypeError


ARITHMETIC: Mapping[type[ast.operator], Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
SIGNS: Mapping[type[ast.unaryop], Function] = {ast.USub: operator.neg, ast.UAdd: operator.pos}


def _bytes(*arguments: object, **named: object) -> object:
    sizes = [value for value in (*arguments, *named.values()) if isinstance(value, int)]
    if sizes and max(sizes) > _LARGEST_COUNT:
        raise ValueError("too many bytes")
    return bytes(*arguments, **named)


def _round(number: object, ndigits: object = None) -> object:
    if isinstance(ndigits, int) and abs(ndigits) > _LARGEST_EXPONENT:
        raise ValueError("too many digits")
    return round(number, ndigits)  # type: ignore[call-overload]  # or TypeError


def _fraction(numerator: object = 0, denominator: object = None) -> object:
    if isinstance(numerator, str) and "e" in numerator.lower():
        raise ValueError("a fraction with an exponent")
    return Fraction(numerator, denominator)  # type: ignore[call-overload]  # or TypeError


def _decimal(value: object = "0") -> object:
    number = Decimal(value)  # type: ignore[arg-type]  # or TypeError
    if abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError("a decimal with a large exponent")
    return number


_MATHS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (math, cmath)
    for name in dir(module)
    if not name.startswith("_")
}
NUMERIC: Mapping[str, Function] = {
    "abs": abs,
    "round": _round,
    "math.isclose": math.isclose,
    "cmath.isclose": cmath.isclose,
    "isclose": math.isclose,
    "math.fabs": math.fabs,
}
"""Functions of numbers that may be applied to the program's answers."""

_CONSTANTS: Mapping[str, object] = {
    name: value for name, value in _MATHS.items() if not callable(value)
}
_PURE: Mapping[str, Function] = {
    name: value
    for name, value in _MATHS.items()
    if callable(value) and value not in (math.factorial, math.comb, math.perm, math.pow)
} | {
    "set": set, "frozenset": frozenset, "list": list, "tuple": tuple, "dict": dict,
    "float": float, "int": int, "complex": complex, "str": str, "bool": bool, "bytes": _bytes,
    "len": len, "sorted": sorted, "sum": sum, "min": min, "max": max, "abs": abs, "round": _round,
    "Counter": Counter, "collections.Counter": Counter, "deque": deque,
    "collections.deque": deque, "OrderedDict": OrderedDict,
    "collections.OrderedDict": OrderedDict, "Fraction": _fraction, "fractions.Fraction": _fraction,
    "Decimal": _decimal, "decimal.Decimal": _decimal, "sys.getsizeof": sys.getsizeof,
}  # fmt: skip

CONVERSIONS = frozenset(
    ("set", "frozenset", "list", "tuple", "dict", "sorted", "str", "int", "float", "bool")
) | frozenset(("len", "sum", "min", "max", "abs", "round"))
"""Functions of one value that reveal no more than the value."""


_MODULES = frozenset(name.partition(".")[0] for name in _PURE if "." in name)


def is_builtin_name(name: str) -> bool:
    """Whether a bare name usually means a built-in, a pure function or its module."""
    return any(name in names for names in (_PURE, NUMERIC, _MODULES)) or hasattr(builtins, name)


def bounded_number(value: object) -> object:
    """Return a number that is small enough for bounded arithmetic."""
    if isinstance(value, int) and value.bit_length() <= _LARGEST_BITS:
        return value
    if isinstance(value, float | complex):
        return value
    raise TypeError(f"a number of at most {_LARGEST_BITS} bits expected")


def evaluate(node: ast.expr, shadowed: Collection[str] = ()) -> object:
    """Return the value of an expression of literals, displays and pure functions."""
    try:
        return _evaluate(node, shadowed)
    except NotConstantError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        raise NotConstantError(str(error)) from error


def _evaluate(  # noqa: PLR0911  # one return for each form
    node: ast.expr, shadowed: Collection[str]
) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_evaluate(item, shadowed) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, shadowed) for item in items)
        case ast.Set(elts=items):
            return {_evaluate(item, shadowed) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_evaluate(k, shadowed): _evaluate(v, shadowed) for k, v in pairs if k}
        case ast.Attribute() if (name := ast.unparse(node)) in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in SIGNS:
            return SIGNS[type(sign)](bounded_number(_evaluate(operand, shadowed)))
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in ARITHMETIC:
            operands = (bounded_number(_evaluate(operand, shadowed)) for operand in (left, right))
            return ARITHMETIC[type(operation)](*operands)
        case ast.Call(func=function) if (name := ast.unparse(function)) not in shadowed:
            return _call(node, name, shadowed)
    raise NotConstantError(type(node).__name__)


def _call(node: ast.Call, name: str, shadowed: Collection[str]) -> object:
    if name not in _PURE or any(keyword.arg is None for keyword in node.keywords):
        raise NotConstantError(name)
    arguments = [_evaluate(argument, shadowed) for argument in node.args]
    named = {str(word.arg): _evaluate(word.value, shadowed) for word in node.keywords}
    return _PURE[name](*arguments, **named)
