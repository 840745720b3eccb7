"""Statistics over seeds, bootstrap intervals over seeds and rows, and pairs by seed.

Seeds alone say nothing about the rows, and two seeds that happen to agree would have an interval
of no width. So each resample draws seeds, and rows that all seeds share.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modnorm.analysis.run_tables import GROUP, RUN
from modnorm.analysis.uncertainty import LEVEL, RESAMPLES, SEED, ConfidenceInterval, mean_interval
from modnorm.errors import InvalidInputError

REFERENCE = "reference_"
"""Prefix of the columns of the reference in a paired table."""


def over_seeds(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """Return mean, sample SD, minimum and maximum of a column over the seeds."""
    found = table.groupby(list(keys), sort=False, dropna=False)[value]
    return found.agg(seeds="count", mean="mean", sd="std", min="min", max="max").reset_index()


def with_intervals(summary: pd.DataFrame, table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Add `lower` and `upper`, the bootstrap interval of each mean over seeds."""
    return with_bounds(summary, table, lambda lines: mean_interval(lines[value].tolist()))


def with_bounds(
    summary: pd.DataFrame,
    table: pd.DataFrame,
    bounds: Callable[[pd.DataFrame], ConfidenceInterval | None],
) -> pd.DataFrame:
    """Add `lower` and `upper` to a summary."""
    keys = list(summary.columns[: summary.columns.get_loc("seeds")])
    groups = table.groupby(keys, sort=False, dropna=False)
    found = [bounds(lines) or (math.nan, math.nan) for _, lines in groups]
    return summary.assign(
        lower=[float(lower) for lower, _ in found], upper=[float(upper) for _, upper in found]
    )


def places(lines: pd.DataFrame, prefix: str = "") -> Iterator[tuple[object, ...]]:
    """Yield the columns of `RUN`, N and K of each line; of the reference with its prefix."""
    names = ["model", "task", f"{prefix}method", "seed", f"{prefix}N", "K"]
    yield from lines[names].itertuples(index=False, name=None)


def choose_reference(table: pd.DataFrame, named: str | None) -> str | None:
    """Return the method that others are compared with."""
    methods = list(dict.fromkeys(table["method"])) if len(table) else []
    if named is not None and named not in methods:
        raise InvalidInputError(
            f"no run is of the method {named!r}",
            field="reference",
            remedy=f"name one of {', '.join(map(str, methods))}",
        )
    if len(methods) < 2:
        return None
    isotropic = (method for method in methods if str(method).lower().startswith("randopt"))
    return named or next(isotropic, methods[0])


def paired(table: pd.DataFrame, reference: str | None, on: Sequence[str] = ()) -> pd.DataFrame:
    """Pair the rows of each method with those of the reference on one model, task and seed."""
    if reference is None or not len(table):
        return pd.DataFrame()
    keys = [name for name in GROUP if name != "method"] + ["seed", *on]
    is_reference = table["method"] == reference
    theirs = table[is_reference]
    theirs = theirs.rename(columns={c: f"{REFERENCE}{c}" for c in theirs if c not in keys})
    return table[~is_reference].merge(theirs, on=keys)


Array = NDArray[np.float64]
Rows = Mapping[tuple[object, ...], Array]
"""A value for each row, by the columns of `RUN`, N and K."""
_EQUAL = 1e-6


class Votes(NamedTuple):
    """The votes of one ensemble, in row order."""

    right_experts: Array
    """m of each row."""
    correct: Array
    """1 where the vote is right, else 0."""


def values_by_row(table: pd.DataFrame, value: str) -> Rows:
    """Return a column of a table with a line for each run, N, K and `row`, in row order."""
    if not len(table):
        return {}
    groups = table.sort_values("row").groupby([*RUN, "N", "K"], sort=False)[value]
    return {place: values.to_numpy(dtype=float) for place, values in groups}


def grid_interval(grid: Array) -> ConfidenceInterval | None:
    """Return the percentile bootstrap interval of a mean over seeds and rows."""
    seeds, rows = grid.shape
    if seeds == 1:
        return mean_interval(grid[0])  # as `modnorm compare` of the same two runs
    by_seed, by_row = _weights(seeds, rows)
    return _percentile_interval(((by_seed @ grid) * by_row).sum(axis=1))


def mean_bounds(
    values: Sequence[float], rows: Sequence[Array | None]
) -> ConfidenceInterval | None:
    """Return the interval of a mean over seeds: over rows too if they are known."""
    known = [of_seed for of_seed in rows if of_seed is not None]
    agree = len(known) == len(values) and all(
        len(of_seed) == len(known[0]) and abs(of_seed.mean() - value) < _EQUAL
        for of_seed, value in zip(known, values, strict=True)
    )
    return grid_interval(np.stack(known)) if known and agree else mean_interval(values)


def term_intervals(pairs: Sequence[tuple[Votes, Votes]]) -> Mapping[str, ConfidenceInterval]:
    """Return the intervals of the mean terms and of their sum, in fractions."""
    by_seed, by_row = _weights(len(pairs), len(pairs[0][0].right_experts))
    terms = np.array([_terms(one, other, by_row) for one, other in pairs])
    support, voting = np.einsum("ts,snt->nt", by_seed, terms)
    found = {"support": support, "voting": voting, "total": support + voting}
    return {name: _percentile_interval(values) for name, values in found.items()}


def split_terms(p: Array, right: Array, p_other: Array, right_other: Array) -> tuple[Array, Array]:
    """Split the accuracy of one ensemble less that of another in support and voting terms.

    The last axis is m; `right` is p(m) q(m). Where only one has rows with some m, both have its
    q(m), so that all of the difference counts as support (eq. "support_symmetric_...").
    """
    with np.errstate(invalid="ignore"):
        q, q_other = right / p, right_other / p_other
    q, q_other = np.where(p > 0, q, q_other), np.where(p_other > 0, q_other, q)
    support = (p - p_other) * (q + q_other) / 2
    voting = (p + p_other) * (q - q_other) / 2
    return np.nansum(support, axis=-1), np.nansum(voting, axis=-1)


def _terms(one: Votes, other: Votes, by_row: Array) -> tuple[Array, Array]:
    """Return both terms of each resample."""
    size = int(max(one.right_experts.max(), other.right_experts.max()))
    return split_terms(*_shares(one, size, by_row), *_shares(other, size, by_row))


def _shares(votes: Votes, size: int, by_row: Array) -> tuple[Array, Array]:
    """Return p(m) and p(m) q(m) of each resample."""
    is_m = votes.right_experts[:, None] == np.arange(size + 1)
    is_right = is_m & (votes.correct[:, None] > 0)
    return by_row @ is_m.astype(float), by_row @ is_right.astype(float)


@lru_cache(maxsize=2)  # drawing takes longer than what is computed from them
def _weights(seeds: int, rows: int) -> tuple[Array, Array]:
    """Return how often each resample draws each seed and each row, as fractions."""
    generator = np.random.default_rng(SEED)
    by_seed, by_row = (
        generator.multinomial(size, np.full(size, 1 / size), RESAMPLES) / size
        for size in (seeds, rows)
    )
    return by_seed, by_row


def _percentile_interval(means: Array) -> ConfidenceInterval:
    """Return the interval that holds the middle `LEVEL` of the resampled means."""
    tail = (1 - LEVEL) / 2
    lower, upper = np.quantile(means, [tail, 1 - tail])
    return ConfidenceInterval(float(lower), float(upper))
