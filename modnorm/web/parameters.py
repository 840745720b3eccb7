"""Checks of query parameters, which anybody can write."""

from collections.abc import Mapping
from math import isfinite
from typing import cast

from modnorm.analysis.answers import SPLITS
from modnorm.errors import InvalidInputError
from modnorm.web.population import SORT_COLUMNS, STATES, CandidateQuery, SortColumn

_LARGEST = 2**31 - 1

Parameters = Mapping[str, str]


def integer(parameters: Parameters, name: str, *, least: int = 0) -> int | None:
    """Return a whole number; None if it is absent or empty."""
    text = parameters.get(name, "").strip()
    if not text:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
        raise _invalid(name, text, "a whole number")
    value = int(text)
    if not least <= value <= _LARGEST:
        raise _invalid(name, text, f"a whole number from {least} to {_LARGEST}")
    return value


def place(address: Mapping[str, str], name: str, *, least: int = 0) -> int:
    """Return a whole number of an address, which must not be blank."""
    value = integer(address, name, least=least)
    if value is None:
        raise _invalid(name, address.get(name, ""), "a whole number")
    return value


def page(parameters: Parameters) -> int:
    """Return the number of the requested page, from 1."""
    return integer(parameters, "page", least=1) or 1


def choice(parameters: Parameters, name: str, choices: tuple[str, ...]) -> str | None:
    """Return one of some words; None if it is absent or empty."""
    text = parameters.get(name, "")
    if text and text not in choices:
        raise _invalid(name, text, f"one of {', '.join(choices)}")
    return text or None


def flag(parameters: Parameters, name: str) -> bool:
    """Return whether a box is ticked."""
    return choice(parameters, name, ("1",)) is not None


def split(parameters: Parameters) -> str | None:
    """Return the requested split."""
    return choice(parameters, "split", SPLITS)


def candidate_query(parameters: Parameters) -> CandidateQuery:
    """Return filter and order of the requested candidates."""
    sort = choice(parameters, "sort", SORT_COLUMNS) or "rank"
    return CandidateQuery(
        sort=cast("SortColumn", sort),
        descending=flag(parameters, "descending"),
        state=choice(parameters, "state", STATES),
        least=_number(parameters, "least"),
        experts=flag(parameters, "experts"),
        page=page(parameters),
    )


def _number(parameters: Parameters, name: str) -> float | None:
    text = parameters.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise _invalid(name, text, "a number") from error
    if not isfinite(value):
        raise _invalid(name, text, "a finite number")
    return value


def _invalid(name: str, text: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"{text[:80]!r} is not accepted", field=name, remedy=remedy)
