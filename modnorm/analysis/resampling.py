"""Bootstrap intervals over seeds and rows together.

Seeds alone say nothing about the rows, and two seeds that happen to agree would have an interval
of no width. Here each resample draws seeds, and rows that all seeds share.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from modnorm.analysis.run_tables import RUN
from modnorm.analysis.uncertainty import (
    LEVEL,
    RESAMPLES,
    SEED,
    ConfidenceInterval,
    mean_interval,
)

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
    """Return the percentile bootstrap interval of a mean over seeds and rows.

    Args:
        grid: A line of values for each seed, a column for each row.

    Returns:
        None with a single value.
    """
    seeds, rows = grid.shape
    if seeds == 1:
        return mean_interval(grid[0])  # as `modnorm compare` of the same two runs
    by_seed, by_row = _weights(seeds, rows)
    return _percentile_interval(((by_seed @ grid) * by_row).sum(axis=1))


def mean_bounds(
    values: Sequence[float], rows: Sequence[Array | None]
) -> ConfidenceInterval | None:
    """Return the interval of a mean over seeds: over rows too if they are known.

    Args:
        values: The value of each seed.
        rows: The same by row; a seed whose rows are unknown or have another mean, as those of a
            balanced accuracy, leaves only the bootstrap over seeds.
    """
    known = [of_seed for of_seed in rows if of_seed is not None]
    agree = len(known) == len(values) and all(
        len(of_seed) == len(known[0]) and abs(of_seed.mean() - value) < _EQUAL
        for of_seed, value in zip(known, values, strict=True)
    )
    return grid_interval(np.stack(known)) if known and agree else mean_interval(values)


def term_intervals(pairs: Sequence[tuple[Votes, Votes]]) -> Mapping[str, ConfidenceInterval]:
    """Return the intervals of the mean support and voting terms, and of their sum, in fractions.

    Args:
        pairs: For each seed the votes of two ensembles of one K on the same rows.
    """
    by_seed, by_row = _weights(len(pairs), len(pairs[0][0].right_experts))
    terms = np.array([_terms(one, other, by_row) for one, other in pairs])
    support, voting = np.einsum("ts,snt->nt", by_seed, terms)
    found = {"support": support, "voting": voting, "total": support + voting}
    return {name: _percentile_interval(values) for name, values in found.items()}


def _terms(one: Votes, other: Votes, by_row: Array) -> tuple[Array, Array]:
    """Return both terms of each resample; see `modnorm.analysis.support.decompose`."""
    size = int(max(one.right_experts.max(), other.right_experts.max()))
    (p, right), (p_other, right_other) = (_shares(votes, size, by_row) for votes in (one, other))
    with np.errstate(invalid="ignore"):
        q, q_other = right / p, right_other / p_other
    q, q_other = np.where(p > 0, q, q_other), np.where(p_other > 0, q_other, q)
    support = (p - p_other) * (q + q_other) / 2
    voting = (p + p_other) * (q - q_other) / 2
    return np.nansum(support, axis=1), np.nansum(voting, axis=1)


def _shares(votes: Votes, size: int, by_row: Array) -> tuple[Array, Array]:
    """Return p(m) and p(m) q(m) of each resample."""
    is_m = votes.right_experts[:, None] == np.arange(size + 1)
    is_right = is_m & (votes.correct[:, None] > 0)
    return by_row @ is_m.astype(float), by_row @ is_right.astype(float)


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
