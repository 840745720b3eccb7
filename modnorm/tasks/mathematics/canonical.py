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

from modnorm.tasks.mathematics import values
from modnorm.tasks.mathematics.expressions import (
    Expression,
    ExpressionSyntaxError,
    Point,
    constant,
    evaluate,
    fold,
    negative,
    positive_points,
    read,
    show,
)
from modnorm.tasks.mathematics.notation import clean, join_thousands
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
            ratios = fold(values.multiply, constant(values.invert(first)), difference)
            solved = "", f"equation in {show(symbols, evaluate(ratios, symbols))}"
    except (ExpressionSyntaxError, ArithmeticError, ValueError):
        return None
    name, form = solved
    return name, form + "".join(map(stepless_form, sides))


def _difference(sides: Sequence[str]) -> tuple[Expression, frozenset[str]]:
    """Return the first side minus the last, and the symbols of all sides."""
    read_sides = [read(side) for side in sides]
    symbols = frozenset[str]().union(*(names for _, names in read_sides))
    return fold(values.add, read_sides[0][0], negative(read_sides[-1][0])), symbols


def _solved(difference: Expression, symbols: frozenset[str]) -> tuple[str, str] | None:
    """Return the symbol that a function is linear in, and the form of its solution."""
    name = _SOLVED_FOR if len(symbols) > 1 else next(iter(symbols))
    try:
        if not _is_linear(difference, name, positive_points(symbols)[0]):
            return None
        others, factors = symbols - {name}, list[Value]()

        def zero(point: Point) -> Value:
            start, factor = _line(difference, name, point)
            factors.append(factor)
            return values.multiply(values.negate(start), values.invert(factor))

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
        for at in (-_ONE, point[name], values.negate(point[name]))
    )


def _line(function: Expression, name: str, point: Point) -> tuple[Value, Value]:
    """Return a linear function's value with the symbol set to 0, and the symbol's factor."""
    start = function({**point, name: Fraction(0)})
    return start, values.add(function({**point, name: _ONE}), values.negate(start))


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
