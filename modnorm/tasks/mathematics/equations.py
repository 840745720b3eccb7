"""Canonical forms of equations: linear ones are solved, others equal up to a constant factor."""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.expressions import (
    Expression,
    ExpressionSyntaxError,
    Point,
    constant,
    evaluate,
    negative,
    pair,
    positive_points,
    read,
    show,
)
from modnorm.tasks.mathematics.values import Value

_STEPS = re.compile(r"\\([lr])(?:floor|ceil)(?![a-z])")
_INFINITY = {r"\infty": "oo", r"+\infty": "oo", r"-\infty": "-oo"}
_SPACING = re.compile(r"(?<!\d) | (?!\d)")
_WORDS = re.compile(r"[(\"']*([^\W\d_][^\W\d_(){}=+*/^]+)[)\"'.,!]*")
_SHORT_WORDS = frozenset({"no", "yes", "odd"})
_BASED = re.compile(r"(-?[0-9][0-9A-Za-z]*)\s*_\s*\{?\s*(\d+)\s*\}?", re.ASCII)


@lru_cache(maxsize=4096)
def scalar_form(text: str) -> str:
    """Return the value of a constant, the values of an expression, or else the text's form."""
    compact = text.replace(" ", "")
    if compact in _INFINITY:
        return _INFINITY[compact]
    if compact.casefold() in _SHORT_WORDS:
        return compact.casefold()
    based = _BASED.fullmatch(text)
    if based is not None:
        return f"{based[1]}_{based[2]}"
    try:
        expression, symbols = read(text)
        form = value_form(expression, symbols)
    except (ExpressionSyntaxError, ArithmeticError, ValueError):
        return text_form(text)
    return f"{form}{stepless_form(text)}" if symbols else form


def text_form(text: str) -> str:
    """Return text with spaces only between digits; a word without case and punctuation."""
    compact = _SPACING.sub("", " ".join(text.split()))
    words = _WORDS.fullmatch(compact)
    return compact if words is None else words[1].casefold()


def stepless_form(text: str) -> str:
    r"""Return the form of an expression with floors and ceilings removed, "" if it has none."""
    content = _STEPS.sub(lambda match: "(" if match[1] == "l" else ")", text)
    return "" if content == text else f" of {scalar_form(content)}"


def value_form(expression: Expression, symbols: frozenset[str]) -> str:
    """Return the values of an expression as text; a single symbol's form is its name."""
    form = show(symbols, evaluate(expression, symbols))
    if len(symbols) == 1:
        (name,) = symbols
        return name if form == _symbol_form(name) else form
    return form


@lru_cache(maxsize=1024)
def _symbol_form(name: str) -> str:
    return show({name}, evaluate(lambda point: point[name], {name}))


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
    """Return the symbol that a function is linear in, and the form of its solution."""
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
