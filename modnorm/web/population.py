"""Candidates of a run: filtered, sorted and paged as columns, without an object for each."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from modnorm.analysis.run_files import unreadable

SortColumn = Literal[
    "rank", "index", "seed", "state", "selection_reward", "gain", "heldout_metric",
    "selection_tokens",
]  # fmt: skip
SORT_COLUMNS: tuple[SortColumn, ...] = get_args(SortColumn)
STATES = ("scored", "stopped", "failed")
PAGE_LINES = 50

CANDIDATE_TYPES = {
    "index": pa.int32(),
    "seed": pa.uint64(),
    "state": pa.string(),
    "rank": pa.int32(),
    "selection_reward": pa.float64(),
    "gain": pa.float64(),
    "heldout_metric": pa.float64(),
    "selection_tokens": pa.int64(),
    "selection_answers": pa.int64(),
    "selection_valid": pa.int64(),
    "selection_truncated": pa.int64(),
    "reward_lower": pa.float64(),
    "reward_upper": pa.float64(),
}
"""Columns of a table of candidates, as in `candidates.csv`."""
_CACHED_FILES = 8


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
class CandidateLine:
    """One candidate; None if a figure was not measured."""

    index: int
    seed: int
    state: str
    rank: int | None
    selection_reward: float | None
    gain: float | None
    heldout_metric: float | None
    selection_tokens: int
    selection_answers: int
    selection_valid: int
    selection_truncated: int
    reward_lower: float | None
    reward_upper: float | None


@dataclass(frozen=True, slots=True)
class CandidatePage:
    """One page of the candidates that match a query."""

    lines: tuple[CandidateLine, ...]
    page: int
    pages: int
    matches: int


def candidate_page(candidates: pa.Table, query: CandidateQuery) -> CandidatePage:
    """Return one page of candidates; a page past the last one is the last.

    Args:
        candidates: All of them, with the columns of `CANDIDATE_TYPES`.
        query: Which are wanted, and in which order.
    """
    table = _matching(candidates, query)
    keys = [(query.sort, "descending" if query.descending else "ascending")]
    if query.sort != "index":
        keys.append(("index", "ascending"))
    pages = max(1, -(-len(table) // PAGE_LINES))
    page = min(query.page, pages)
    order = pc.sort_indices(table, sort_keys=keys)
    shown = table.take(order[(page - 1) * PAGE_LINES : page * PAGE_LINES])
    lines = tuple(CandidateLine(**line) for line in shown.to_pylist())
    return CandidatePage(lines, page, pages, len(table))


def read_table(path: Path) -> pa.Table:
    """Return the columns of `candidates.csv`; an unchanged file is read once.

    Raises:
        InvalidInputError: the file is missing or damaged.
    """
    try:
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_size)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


@lru_cache(maxsize=_CACHED_FILES)
def _read(path: Path, _changed: int, _size: int) -> pa.Table:
    """Read a file; its time and size are part of the key of the cache."""
    options = csv.ConvertOptions(
        column_types=CANDIDATE_TYPES, include_columns=list(CANDIDATE_TYPES)
    )
    return csv.read_csv(path, convert_options=options)


def _matching(table: pa.Table, query: CandidateQuery) -> pa.Table:
    if query.state is not None:
        table = table.filter(pc.field("state") == query.state)
    if query.least is not None:
        table = table.filter(pc.field("selection_reward") >= query.least)
    if query.experts:
        table = table.filter(pc.field("heldout_metric").is_valid())
    return table
