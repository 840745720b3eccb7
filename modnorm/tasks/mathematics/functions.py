"""Expressions as functions of their symbols, and combinators of such functions."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import TypeAlias

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.values import Value

Point = Mapping[str, Value]
"""A value for every symbol."""
Expression = Callable[[Point], Value]


def constant(value: Value) -> Expression:
    """Return the constant function of a value."""
    return lambda _: value


def after(outer: Callable[[Value], Value], inner: Expression) -> Expression:
    """Return the composition outer(inner)."""
    return lambda point: outer(inner(point))


def pair(
    operation: Callable[[Value, Value], Value], left: Expression, right: Expression
) -> Expression:
    """Return operation(left, right)."""
    return lambda point: operation(left(point), right(point))


def fold(operation: Callable[[Value, Value], Value], operands: Sequence[Expression]) -> Expression:
    """Return operation(... operation(first, second) ..., last)."""
    if len(operands) == 1:
        return operands[0]

    def evaluate(point: Point) -> Value:
        value = operands[0](point)
        for operand in operands[1:]:
            value = operation(value, operand(point))
        return value

    return evaluate


def negative(operand: Expression) -> Expression:
    """Return -operand."""
    return after(partial(values.multiply, Fraction(-1)), operand)


def elementary(name: str) -> Callable[[Value], Value]:
    """Return an elementary function by mpmath's name."""
    return partial(values.elementary, name)


def repeating(whole: str, fixed: str, period: str) -> Fraction:
    """Return the value of a repeating decimal: `repeating("", "1", "6")` is 0.1666... = 1/6."""
    scale = 10 ** len(fixed)
    start = Fraction(int(f"{whole}{fixed}" or "0"), scale)
    return start + Fraction(int(period), (10 ** len(period) - 1) * scale)


Values: TypeAlias = Sequence[Value | None]
"""Values at the points; None if an expression has no real value."""

MAX_NEGATIVE = 4
"""Number of symbols, the first by name, that take a negative value at a point of their own."""

_RANGES = ((Fraction(1, 3), 3), (3, 10), (10, 40))
"""Range of the symbols at each point; floors and ceilings need large values as well."""
_NEGATIVE = 1
"""Index of the point at which one symbol changes its sign; factorials of larger ones vanish."""
_DIGITS = 10
_UNDEFINED = "?"


def positive_points(symbols: Iterable[str]) -> list[Point]:
    """Return the points with positive symbols; one empty point without symbols."""
    names = sorted(symbols)
    if not names:
        return [{}]
    return [{name: coordinate(name, index) for name in names} for index in range(len(_RANGES))]


def negative_points(symbols: Iterable[str]) -> Iterator[Point]:
    """Yield the points with one negative symbol."""
    names = sorted(symbols)
    for negative in names[:MAX_NEGATIVE]:
        point = {name: coordinate(name, _NEGATIVE) for name in names}
        yield {**point, negative: values.multiply(Fraction(-1), point[negative])}


@lru_cache(maxsize=1024)
def coordinate(name: str, index: int) -> Value:
    """Return a number that depends only on the symbol's name and the point's index."""
    digest = hashlib.sha256(f"{index} {name}".encode()).digest()
    low, high = _RANGES[index]
    share = Fraction(int.from_bytes(digest[:16], "big"), 2**128)
    return values.inexact(low + share * (high - low))


def evaluate(expression: Expression, symbols: Collection[str]) -> Values:
    """Return the values of an expression, first at the points with positive symbols."""
    with values.LOCK:
        first = [expression(point) for point in positive_points(symbols)]
        if not all(map(values.is_real, first)):
            return first
        return [*first, *(_real(expression, point) for point in negative_points(symbols))]


def show(symbols: Collection[str], shown: Values) -> str:
    """Return the value of a constant, else the symbols and the values at the points."""
    digits = _DIGITS if symbols else values.DIGITS_SHOWN
    parts = [_UNDEFINED if value is None else values.show(value, digits) for value in shown]
    defined = {*parts} - {_UNDEFINED}
    if len(defined) == 1:
        return defined.pop()
    return f"{', '.join(sorted(symbols))}: {' | '.join(parts)}"


def _real(expression: Expression, point: Point) -> Value | None:
    try:
        value = expression(point)
    except (ArithmeticError, ValueError):
        return None
    return value if values.is_real(value) else None
