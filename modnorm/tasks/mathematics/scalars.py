r"""Canonical forms of single expressions and of text."""

import re
from functools import lru_cache

from modnorm.tasks.mathematics.evaluation_points import evaluate, show
from modnorm.tasks.mathematics.expressions import ExpressionSyntaxError, read
from modnorm.tasks.mathematics.functions import Expression

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
    r"""Return the form of an expression with floors and ceilings removed, "" if it has none.

    Floors and ceilings hide differences at few points: `\lfloor \frac{n}{9} \rfloor` is 0 below 9.
    The expression inside shows them.
    """
    content = _STEPS.sub(lambda match: "(" if match[1] == "l" else ")", text)
    return "" if content == text else f" of {scalar_form(content)}"


def value_form(expression: Expression, symbols: frozenset[str]) -> str:
    """Return the values of an expression as text; a single symbol's form is its name.

    Raises:
        ArithmeticError: the expression has no value.
        ValueError: a value is out of range.
    """
    form = show(symbols, evaluate(expression, symbols))
    if len(symbols) == 1:
        (name,) = symbols
        return name if form == _symbol_form(name) else form
    return form


@lru_cache(maxsize=1024)
def _symbol_form(name: str) -> str:
    return show({name}, evaluate(lambda point: point[name], {name}))
