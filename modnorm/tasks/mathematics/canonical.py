"""Canonical forms of answers: two answers are equal if their canonical forms are.

- A constant becomes its value: `1/2`, `1.4142135623730950488`.
- An expression with symbols becomes its values at fixed points, so its notation does not matter.
- An equation that is linear in its only symbol becomes the solution; another equation becomes the
  difference of its sides up to a factor.
- Lists and sets lose their order; tuples, intervals and matrices keep it.
- Everything else is compared as text without spacing.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from typing import TypeAlias

from modnorm.tasks.mathematics.equations import equation, scalar_form, text_form
from modnorm.tasks.mathematics.notation import clean, join_thousands

_INTERVAL = re.compile(r"([(\[])([^,()\[\]]+), ([^,()\[\]]+)([)\]])")
_INFINITE = {"oo": math.inf, "-oo": -math.inf}

_Cut: TypeAlias = tuple[Fraction | float, int, str]
"""A cut of the real line just before (-1) or just after (1) a number, and half of a form."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """An interval between two cuts; a number is a closed interval."""

    start: _Cut
    end: _Cut
    form: str

    @property
    def is_number(self) -> bool:
        return self.start[0] == self.end[0]


def union(forms: Iterable[str]) -> str:
    """Return the form of a union of sets; intervals and numbers that meet become one.

    `(0, 1]` and `(1, 2)` are `(0, 2)`; `(0, 1)` and `(1, 2)` stay two. The whole line is `R`.
    """
    others, pieces = set[str](), list[_Piece]()
    for form in forms:
        numbers = [_piece(f"[{number}, {number}]", number) for number in form.split(", ")]
        found = numbers if all(numbers) else [_piece(form, form)]
        pieces += filter(None, found)
        others |= set() if all(found) else {form}
    runs = list[_Piece]()
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if runs and piece.start[:2] <= runs[-1].end[:2]:
            runs[-1] = _joined(runs[-1], piece)
        else:
            runs.append(piece)
    numbers_left = ", ".join(sorted(run.form for run in runs if run.is_number))
    others |= {run.form for run in runs if not run.is_number} | {numbers_left}
    joined = " u ".join(sorted(others - {""}))
    return "R" if joined == "(-oo, oo)" else joined


def _joined(left: _Piece, right: _Piece) -> _Piece:
    if right.end <= left.end:
        return left
    return _Piece(left.start, right.end, f"{left.start[2]}, {right.end[2]}")


def _piece(interval: str, form: str) -> _Piece | None:
    """Return an interval with its form; None if its ends are no real numbers in order."""
    match = _INTERVAL.fullmatch(interval)
    if match is None:
        return None
    opening, low, high, closing = match.groups()
    try:
        numbers = [_INFINITE.get(end) or Fraction(end) for end in (low, high)]
    except (ValueError, ZeroDivisionError):
        return None
    start = numbers[0], -1 if opening == "[" else 1, f"{opening}{low}"
    end = numbers[1], 1 if closing == "]" else -1, f"{high}{closing}"
    return _Piece(start, end, form) if start[:2] < end[:2] else None


_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENING = frozenset({"(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil", r"\langle"})
_CLOSING = frozenset({")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil", r"\rangle"})
_MATRIX = re.compile(r"\\begin\s*\{([pbvB]?matrix)\}(.*)\\end\s*\{\1\}", re.DOTALL)
_SIGNS = re.compile(r"\\(?:pm|mp)(?![a-z])")
_NAME = re.compile(
    r"(?:\\angle\s*)?\\?[A-Za-z][A-Za-z\s']*(?:_\s*(?:\{[^{}]*\}|\w))?(?:\^\{-1\})?(?:\([A-Za-z\d,\s]+\))?"
)


def split(text: str, separators: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the parts between separators outside all brackets, and these separators."""
    parts, met, start, depth = [], [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif depth == 0 and token in separators:
            parts.append(text[start : match.start()].strip())
            met.append(token)
            start = match.end()
    parts.append(text[start:].strip())
    return parts, met


def bracketed(text: str, openings: Collection[str]) -> tuple[str, str, str] | None:
    """Return opening, content and closing if one pair of brackets encloses the text."""
    tokens = list(_TOKEN.finditer(text))
    if not tokens or tokens[0][0] not in openings or tokens[-1][0] not in _CLOSING:
        return None
    depth = 0
    for match in tokens[:-1]:
        depth += (match[0] in _OPENING) - (match[0] in _CLOSING)
        if depth == 0:
            return None
    return tokens[0][0], text[tokens[0].end() : tokens[-1].start()].strip(), tokens[-1][0]


def matrix_rows(text: str) -> list[list[str]] | None:
    """Return the entries of a matrix by row; None if the text is no matrix."""
    match = _MATRIX.fullmatch(text)
    if match is None:
        return None
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?", match[2]) if row.strip()]
    return [[entry.strip() for entry in row.split("&")] for row in rows]


def is_name(text: str) -> bool:
    r"""Whether a text names a quantity, like the left side of `x = 5` or `f(n) = n^2`."""
    return _NAME.fullmatch(text) is not None


def sign_readings(text: str) -> tuple[str, str] | None:
    r"""Return the two readings of a text with `\pm` or `\mp`, upper signs first; else None."""
    if _SIGNS.search(text) is None:
        return None
    upper = _SIGNS.sub(lambda match: "+" if match[0] == r"\pm" else "-", text)
    lower = _SIGNS.sub(lambda match: "-" if match[0] == r"\pm" else "+", text)
    return upper, lower


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
    """Return the canonical form of an answer; it is never empty."""
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
