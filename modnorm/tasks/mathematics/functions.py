"""Expressions as functions of their symbols, and combinators of such functions."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial

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
