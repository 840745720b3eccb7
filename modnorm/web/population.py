"""Candidates of a run: filtered, sorted and paged as a table of pandas."""

from dataclasses import dataclass
from typing import Literal, get_args

import pandas as pd

from modnorm.analysis.candidates import CandidateRecord, candidate_records

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
