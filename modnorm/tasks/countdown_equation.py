r"""What counts as a Countdown answer for the scorer `countdown-v2`.

An answer is an expression or an equation. It counts if one side uses exactly the row's numbers and
every other side has the same value: `44 + 19 + 35`, `44 + 19 + 35 = 98`, `98 = 44 + 19 + 35`,
`44 + 19 + 35 = 63 + 35 = 98`. The prompt asks for an equation, so a result beside the expression
costs nothing; arrows and the sign for "approximately" stand for `=`. A false equation is no
answer: neither `44 + 19 + 35 = 99` nor `44 + 19 = 63 + 35 = 98`.

Notation does not matter: `\times`, `\cdot`, `x`, `\div`, `\frac{44}{19}`, their Unicode signs, all
brackets, `$...$`, `\boxed{...}`, bold and full-width characters. The operations are those that the
prompt allows. Words and names, as in `x = 44 + 19`, have no value.
"""

import re
from collections.abc import Sequence

from modnorm.tasks.arithmetic import (
    MAX_EXPRESSION,
    Number,
    evaluate,
    has_legal_characters,
    literals,
)
from modnorm.tasks.mathematics.notation import plain_notation

TOLERANCE = 1e-5
"""Largest difference between two sides, or between a value and the target."""

_CHARACTERS = str.maketrans(
    "\u2217\u2219\u2715\u2716\u2215\u2797\u2795\u2796\u2010\u2011\u2012\u2014", "****//+-----"
)
_FRAME = "*`_.,; \n"
_BOXED = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
_MARKUP = re.compile(r"(?<==)\s*\*\*|\*\*(?=\s*=)|\\boxed(?=\s*\{[\d.,/\s-]*\})")
_EQUALS = re.compile(r"=+>?|\\approx(?![a-z])|\u2192")
_TOKEN = re.compile(r"(\\frac(?![a-z]))|(\\?[\[{(])|(\\?[\]})])")
_TIMES = re.compile(r"(?<=[\d)])(\s*)[xX](?=\s*[\d(+-])|\\ast(?![a-z])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))", re.ASCII)
_STATED = re.compile(r"\s*([+-]?\d+\.\d+)\s*", re.ASCII)


def answer_value(answer: str, numbers: Sequence[int]) -> Number | None:
    """Return the value of an answer; None if it does not count, see the module."""
    if len(answer) > MAX_EXPRESSION:
        return None
    text = plain_notation(answer.strip(_FRAME).translate(_CHARACTERS)).strip(_FRAME)
    boxed = _BOXED.fullmatch(text)
    text = _MARKUP.sub("", boxed[1] if boxed else text)
    text = " ".join(_round_brackets(text).split())
    sides = _EQUALS.split(_TIMES.sub(r"\1*", _THOUSANDS.sub("", text)))
    values = [_value(side) for side in sides]
    used = next(
        (value for side, value in zip(sides, values, strict=True) if uses(side, numbers)), None
    )
    if used is None or any(value is None or abs(value - used) >= TOLERANCE for value in values):
        return None
    return used


def uses(expression: str, numbers: Sequence[int]) -> bool:
    """Whether the numbers of an expression are exactly those of a row."""
    return has_legal_characters(expression) and sorted(literals(expression)) == sorted(numbers)


def _value(side: str) -> Number | None:
    """Return the value of a side; a result may be a decimal."""
    stated = _STATED.fullmatch(side)
    return float(stated[1]) if stated else evaluate(side)


def _round_brackets(text: str) -> str:
    r"""Return a text with round brackets and `/` in place of other brackets and `\frac`."""
    closings: list[str] = []
    closing = ")"

    def replace(token: re.Match[str]) -> str:
        nonlocal closing
        if token[1]:
            closing = ")/"
            return "("
        if token[2]:
            closings.append(closing)
            closing = ")"
            return "("
        closed = closings.pop() if closings else ")"
        closing = "))" if closed == ")/" else ")"
        return closed

    return _TOKEN.sub(replace, text)
