r"""Canonical forms of single expressions, of equations, and of what is neither."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.expressions import SyntaxProblemError, read
from modnorm.tasks.mathematics.functions import Expression, Point, negative, pair
from modnorm.tasks.mathematics.values import Value

_RANGES = ((Fraction(1, 3), 3), (3, 10), (10, 40))
"""Ranges of the symbols, point by point; floors and ceilings need large values too."""
_STEPS = re.compile(r"\\([lr])(?:floor|ceil)(?![a-z])")
_SYMBOLIC_DIGITS = 10
_INFINITY = {r"\infty": "oo", r"+\infty": "oo", r"-\infty": "-oo"}
_SPACING = re.compile(r"(?<!\d) | (?!\d)")
_WORDS = re.compile(r"[(\"']*([^\W\d_][^\W\d_(){}=+*/^]+)[)\"'.,!]*")
_SHORT_WORDS = frozenset({"no", "yes", "odd"})
_BASED = re.compile(r"(-?[0-9][0-9A-Za-z]*)\s*_\s*\{?\s*(\d+)\s*\}?", re.ASCII)


def scalar_form(text: str) -> str:
    """Return the value of a constant, the values of an expression, or the text of neither."""
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
        form = _name(symbols, _show(symbols, _evaluate(expression, symbols)))
    except (SyntaxProblemError, ArithmeticError, ValueError):
        return text_form(text)
    return f"{form}{_slope(text)}" if symbols else form


def equation_form(sides: Sequence[str]) -> str:
    """Return the form of an equation, which does not change when its sides do by one factor."""
    try:
        read_sides = [read(side) for side in sides]
        symbols = frozenset[str]().union(*(names for _, names in read_sides))
        if not symbols:
            return text_form("=".join(sides))
        first, last = read_sides[0][0], read_sides[-1][0]
        differences = _evaluate(pair(values.add, first, negative(last)), symbols)
        scale = values.invert(differences[0])
        ratios = [values.multiply(scale, difference) for difference in differences[1:]]
        form = f"equation in {_show(symbols, ratios)}"
    except (SyntaxProblemError, ArithmeticError, ValueError):
        return text_form("=".join(sides))
    return form + "".join(map(_slope, sides))


def text_form(text: str) -> str:
    """Return text without spacing but between digits; words without case and enclosure."""
    compact = _SPACING.sub("", " ".join(text.split()))
    words = _WORDS.fullmatch(compact)
    return compact if words is None else words[1].casefold()


def _slope(text: str) -> str:
    r"""Return the form of an expression without its floors and ceilings, "" when it has none.

    At few points steps hide differences: `\lfloor \frac{n}{9} \rfloor` is 0 below 9. What they
    are taken of shows them.
    """
    content = _STEPS.sub(lambda match: "(" if match[1] == "l" else ")", text)
    return "" if content == text else f" of {scalar_form(content)}"


def _name(symbols: frozenset[str], form: str) -> str:
    """Return the name of the symbol that a form is of, the form itself where it is of none."""
    if len(symbols) != 1:
        return form
    (name,) = symbols
    return name if form == _symbol_form(name) else form


@lru_cache(maxsize=1024)
def _symbol_form(name: str) -> str:
    return _show({name}, _evaluate(lambda point: point[name], {name}))


def _evaluate(expression: Expression, symbols: Iterable[str]) -> list[Value]:
    with values.LOCK:
        if not symbols:
            return [expression({})]
        return [expression(_point(symbols, index)) for index in range(len(_RANGES))]


def _point(symbols: Iterable[str], index: int) -> Point:
    return {name: _coordinate(name, index) for name in symbols}


@lru_cache(maxsize=1024)
def _coordinate(name: str, index: int) -> Value:
    """Return a number that depends on the symbol's name and the index of the point alone."""
    digest = hashlib.sha256(f"{index} {name}".encode()).digest()
    low, high = _RANGES[index]
    share = Fraction(int.from_bytes(digest[:16], "big"), 2**128)
    return values.inexact(low + share * (high - low))


def _show(symbols: Iterable[str], shown: Sequence[Value]) -> str:
    if not symbols:
        return values.show(shown[0])
    parts = [values.show(value, _SYMBOLIC_DIGITS) for value in shown]
    return (
        parts[0] if len(set(parts)) == 1 else f"{', '.join(sorted(symbols))}: {' | '.join(parts)}"
    )
