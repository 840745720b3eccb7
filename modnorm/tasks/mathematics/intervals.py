"""Unions of real intervals, from and to canonical forms."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

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
