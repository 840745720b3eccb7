r"""Canonical forms of answers: two answers are equal if their canonical forms are.

- A constant becomes its value: `1/2`, `1.4142135623730950488`.
- An expression with symbols becomes its values at fixed points, so its notation does not matter.
- An equation that is linear in its only symbol becomes the solution; another equation becomes the
  difference of its sides up to a factor.
- Lists and sets lose their order; tuples, intervals and matrices keep it.
- Everything else is compared as text without spacing.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from modnorm.tasks.mathematics.equations import equation
from modnorm.tasks.mathematics.intervals import union
from modnorm.tasks.mathematics.latex import clean, join_thousands
from modnorm.tasks.mathematics.scalars import scalar_form, text_form
from modnorm.tasks.mathematics.structure import (
    bracketed,
    is_name,
    matrix_rows,
    sign_readings,
    split,
)

MAX_LENGTH = 1000
"""Longest answer that is read as mathematics, in characters; some expressions take quadratic time.
Extracted answers are shorter, but a row's answer may be a whole solution."""
MAX_NESTING = 10
"""Levels of nested lists that are parsed; deeper ones are compared as text."""
MAX_CHAIN = 10
"""Sides of `1 + 2 = 6/2 = 3` that are compared; a longer chain is an equation."""

_RELATIONS = {r"\le": "<=", r"\ge": ">=", r"\ne": "!=", "<": "<", ">": ">"}
_MIRRORED = {">": "<", ">=": "<="}
_Member = tuple[str, str]
"""The name that equals an answer ("" without one), and the answer's form."""


@lru_cache(maxsize=16_384)
def canonical(answer: str, *, thousands: bool = True) -> str:
    """Return the canonical form of an answer; it is never empty.

    Args:
        answer: LaTeX or plain text.
        thousands: Whether `1,000` is a number; otherwise it is a list of two.
    """
    if len(answer) > MAX_LENGTH:
        return text_form(answer) or "?"
    text = clean(answer)
    return (
        _form(join_thousands(text) if thousands else text, MAX_NESTING) or text_form(answer) or "?"
    )


def _form(text: str, nesting: int) -> str:
    if nesting == 0:
        return text_form(text)
    members = _members(text, nesting)
    if len(members) == 1:
        return members[0][1]
    named = len({name for name, _ in members if name}) > 1
    forms = sorted(f"{name}={form}" if named and name else form for name, form in members)
    return ", ".join(forms)


def _members(text: str, nesting: int) -> list[_Member]:
    r"""Return the members of a list or a set; `\pm` makes two."""
    parts = [part for part in split(text, {",", ";"})[0] if part]
    if len(parts) > 1:
        return [member for part in parts for member in _members(part, nesting)]
    braces = bracketed(text, {r"\{", "{"})
    if braces is not None:
        return (
            _distinct(_members(braces[1], nesting - 1)) if braces[1] and nesting else [("", "{}")]
        )
    readings = sign_readings(text)
    if readings is not None:
        return _distinct([_member(reading, nesting) for reading in readings])
    return [_member(text, nesting)]


def _distinct(members: Sequence[_Member]) -> list[_Member]:
    """Return the members of a set once each; a member without a name equals any of its form."""
    names = {form: name for name, form in members if name}
    return list(dict.fromkeys((name or names.get(form, ""), form) for name, form in members))


def _member(text: str, nesting: int) -> _Member:
    text = _exact(text)
    related = _relation(text, nesting)
    if related is not None:
        return "", related
    sides, _ = split(text, {"="})
    names = list(takewhile(is_name, sides[:-1]))
    name = re.sub(r"[ {}]", "", names[0]) if names else ""
    if len(names) == len(sides) - 1 > 0:
        return name, _form(sides[-1], nesting - 1)
    if len(sides) == 2 and _is_tuple_of_names(sides[0]):
        return "", _form(sides[1], nesting - 1)
    if len(sides) > 1:
        return _equation(sides, name, len(names), nesting)
    return "", _single(text, nesting)


def _equation(sides: Sequence[str], name: str, names: int, nesting: int) -> _Member:
    """Return the common value of the sides after the names, else the form of an equation."""
    member = equation(sides) if len(sides) == 2 else None
    if member is not None:
        return member
    forms = {_form(side, nesting - 1) for side in sides[names:][:MAX_CHAIN]}
    if len(forms) == 1 and len(sides) <= names + MAX_CHAIN:
        return name, forms.pop()
    return equation(sides) or ("", text_form("=".join(sides)))


def _exact(text: str) -> str:
    r"""Return the side before `\approx`, or the side after it if a name stands before."""
    sides, met = split(text, {r"\approx"})
    return sides[is_name(sides[0])] if met and all(sides) else text


def _relation(text: str, nesting: int) -> str | None:
    r"""Return the form of `x \in S` (that of S), of inequalities, or of their union; else None."""
    sides, met = split(text, {r"\in"})
    if met and is_name(sides[0]):
        return _form(sides[-1], nesting - 1)
    sets, joined = split(text, {r"\cup"})
    if joined and any(split(member, _RELATIONS)[1] for member in sets):
        return _union(sets, nesting)
    sides, met = split(text, _RELATIONS)
    if not met:
        return None
    symbols = [_RELATIONS[symbol] for symbol in met]
    if all(symbol in _MIRRORED for symbol in symbols):
        sides, symbols = sides[::-1], [_MIRRORED[symbol] for symbol in symbols[::-1]]
    interval = _interval(sides, symbols)
    if interval is not None:
        opening, ends, closing = interval
        return f"{opening}{_ordered(ends, nesting)}{closing}"
    pairs = zip(["", *symbols], sides, strict=True)
    return " ".join(f"{symbol} {_single(side, nesting)}".strip() for symbol, side in pairs)


def _interval(
    sides: Sequence[str], symbols: Sequence[str]
) -> tuple[str, tuple[str, str], str] | None:
    """Return the interval of one name's inequalities: opening bracket, ends, closing bracket."""
    if not set(symbols) <= {"<", "<="}:
        return None
    names = [is_name(side) for side in sides]
    if names == [True, False]:
        sides, symbols = (r"-\infty", *sides), ("<", *symbols)
    elif names == [False, True]:
        sides, symbols = (*sides, r"\infty"), (*symbols, "<")
    elif names != [False, True, False]:
        return None
    opening, closing = ("(" if symbols[0] == "<" else "["), (")" if symbols[1] == "<" else "]")
    return opening, (sides[0], sides[2]), closing


def _is_tuple_of_names(text: str) -> bool:
    enclosed = bracketed(text, {"("})
    return enclosed is not None and all(map(is_name, split(enclosed[1], {","})[0]))


def _single(text: str, nesting: int) -> str:
    """Return the form of a union, a tuple, an interval, a matrix or an expression."""
    sets, met = split(text, {r"\cup"})
    if met:
        return _union(sets, nesting)
    enclosed = bracketed(text, {"(", "[", r"\langle"})
    rows = matrix_rows(text if enclosed is None else enclosed[1])
    if rows is not None:
        return f"[{'; '.join(_ordered(row, nesting) for row in rows)}]"
    if enclosed is not None:
        opening, content, closing = enclosed
        parts, met = split(content, {",", ";"})
        if met:
            return union([f"{_bracket(opening)}{_ordered(parts, nesting)}{_bracket(closing)}"])
    return scalar_form(text)


def _union(sets: Sequence[str], nesting: int) -> str:
    return union(_form(member, nesting - 1) for member in sets)


def _ordered(parts: Sequence[str], nesting: int) -> str:
    return ", ".join(_form(part, nesting - 1) for part in parts)


def _bracket(token: str) -> str:
    return re.sub(r"\\[lr]angle", lambda match: "(" if match[0] == r"\langle" else ")", token)
