"""Values of a page's address and its form, and the candidates that they ask for."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Literal, cast, get_args

import pandas as pd

from modnorm.analysis.answers import SPLITS
from modnorm.analysis.candidates import CandidateRecord, candidate_records
from modnorm.errors import InvalidInputError

SortColumn = Literal[
    "rank", "index", "seed", "state", "selection_reward", "gain", "heldout_metric",
    "selection_tokens",
]  # fmt: skip
SORT_COLUMNS: tuple[SortColumn, ...] = get_args(SortColumn)
STATES = ("scored", "stopped", "failed")
PAGE_LINES = 50


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """Filter and order of candidates."""

    sort: SortColumn = "rank"
    descending: bool = False
    state: str | None = None
    least: float | None = None
    """Least selection reward."""
    experts: bool = False
    """Whether only candidates with a held-out metric are wanted."""
    page: int = 1


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """One page of the candidates that match a query."""

    lines: tuple[CandidateRecord, ...]
    page: int
    pages: int
    matches: int


def candidate_page(candidates: pd.DataFrame, query: CandidateQuery) -> CandidatePage:
    """Return one page of candidates; a page past the last one is the last."""
    found = candidates
    if query.state is not None:
        found = found[found["state"] == query.state]
    if query.least is not None:
        found = found[found["selection_reward"] >= query.least]
    if query.experts:
        found = found[found["heldout_metric"].notna()]
    keys = list(dict.fromkeys([query.sort, "index"]))
    order = [not query.descending, True][: len(keys)]
    found = found.sort_values(keys, ascending=order)
    pages = max(1, -(-len(found) // PAGE_LINES))
    page = min(query.page, pages)
    shown = found[(page - 1) * PAGE_LINES : page * PAGE_LINES]
    return CandidatePage(candidate_records(shown), page, pages, len(found))


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
    least, text = None, parameters.get("least", "").strip()
    if text:
        try:
            least = float(text)
        except ValueError as error:
            raise _invalid("least", text, "a number") from error
        if not isfinite(least):
            raise _invalid("least", text, "a finite number")
    return CandidateQuery(
        sort=cast("SortColumn", sort),
        descending=flag(parameters, "descending"),
        state=choice(parameters, "state", STATES),
        least=least,
        experts=flag(parameters, "experts"),
        page=page(parameters),
    )


def _invalid(name: str, text: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"{text[:80]!r} is not accepted", field=name, remedy=remedy)
