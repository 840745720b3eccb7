r"""Canonical forms of equations: linear ones are solved, others equal up to a constant factor."""

from collections.abc import Sequence
from fractions import Fraction

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.evaluation_points import evaluate, positive_points, show
from modnorm.tasks.mathematics.expressions import ExpressionSyntaxError, read
from modnorm.tasks.mathematics.functions import Expression, Point, constant, negative, pair
from modnorm.tasks.mathematics.scalars import stepless_form, value_form
from modnorm.tasks.mathematics.values import Value

_SOLVED_FOR = "y"
"""Symbol that an equation in several symbols is solved for."""

_ONE = Fraction(1)


def equation(sides: Sequence[str]) -> tuple[str, str] | None:
    """Return the symbol that an equation is solved for ("" if unsolved) and the equation's form.

    A linear equation in one symbol is solved for it: `2x = 10` is `x = 5`. A linear one in several
    symbols is solved for y. The form of others is invariant under a factor of both sides. Return
    None if the sides have no symbols, are equal, or are no expressions.
    """
    try:
        difference, symbols = _difference(sides)
        with values.LOCK:
            first = difference(positive_points(symbols)[0])
            if not symbols or values.is_zero(first):
                return None
            solved = _solved(difference, symbols)
        if solved is None:
            ratios = pair(values.multiply, constant(values.invert(first)), difference)
            solved = "", f"equation in {show(symbols, evaluate(ratios, symbols))}"
    except (ExpressionSyntaxError, ArithmeticError, ValueError):
        return None
    name, form = solved
    return name, form + "".join(map(stepless_form, sides))


def _difference(sides: Sequence[str]) -> tuple[Expression, frozenset[str]]:
    """Return the first side minus the last, and the symbols of all sides."""
    read_sides = [read(side) for side in sides]
    symbols = frozenset[str]().union(*(names for _, names in read_sides))
    return pair(values.add, read_sides[0][0], negative(read_sides[-1][0])), symbols


def _solved(difference: Expression, symbols: frozenset[str]) -> tuple[str, str] | None:
    """Return the symbol that a function is linear in, and the form of its solution.

    The solution is the symbol's value where the function is zero. Return None if the function is
    not linear, or if the symbol's factor is not constant.
    """
    name = _SOLVED_FOR if len(symbols) > 1 else next(iter(symbols))
    if name not in symbols:
        return None
    try:
        if not _is_linear(difference, name, positive_points(symbols)[0]):
            return None
        others, factors = symbols - {name}, list[Value]()

        def zero(point: Point) -> Value:
            start, factor = _line(difference, name, point)
            factors.append(factor)
            return values.multiply(_negative(start), values.invert(factor))

        form = value_form(zero, others)
    except (ArithmeticError, ValueError):
        return None
    constant_factor = all(values.are_close(factors[0], factor) for factor in factors)
    return (name, form) if constant_factor else None


def _is_linear(function: Expression, name: str, point: Point) -> bool:
    """Whether a function is linear in a symbol at a point, on both sides of zero."""
    start, factor = _line(function, name, point)
    return not values.is_zero(factor) and all(
        values.are_close(
            function({**point, name: at}), values.add(start, values.multiply(factor, at))
        )
        for at in (_negative(_ONE), point[name], _negative(point[name]))
    )


def _line(function: Expression, name: str, point: Point) -> tuple[Value, Value]:
    """Return a linear function's value with the symbol set to 0, and the symbol's factor."""
    start = function({**point, name: Fraction(0)})
    return start, values.add(function({**point, name: _ONE}), _negative(start))


def _negative(value: Value) -> Value:
    return values.multiply(-_ONE, value)
