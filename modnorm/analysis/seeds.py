"""Statistics over seeds, and the measures of tails and votes whose means they are.

Seeds alone say nothing about the rows, and two seeds that happen to agree would have an interval
of no width. So each resample draws seeds, and rows that all seeds share.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, starmap

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike, NDArray

from modnorm.analysis.frames import GROUP
from modnorm.analysis.uncertainty import LEVEL, RESAMPLES, SEED, ConfidenceInterval, mean_interval
from modnorm.errors import InvalidInputError

Array = NDArray[np.float64]
Bounds = Callable[[pd.DataFrame], ConfidenceInterval | None]
"""Returns the interval of a mean from the lines of its seeds."""
REFERENCE = "reference_"
"""Prefix of the columns of the reference in a paired table."""
TERMS = ("support", "voting", "total")
"""Terms of an accuracy difference; the total is the sum of the other two."""
ROUNDING = 1e-9
"""Percentage points by which a gain may miss a threshold that it equals: rewards are means of a
few hundred rows."""
HITS = 10
"""Candidates above the threshold that a required population has to contain."""
_EQUAL = 1e-6


def over_seeds(
    table: pd.DataFrame, keys: Sequence[str], value: str, bounds: Bounds | None = None
) -> pd.DataFrame:
    """Return mean, sample SD, minimum and maximum of a column over the seeds.

    `lower` and `upper` are its bounds: by default the bootstrap over the seeds.
    """
    groups = table.groupby(list(keys), sort=False, dropna=False)
    summary = groups[value].agg(seeds="count", mean="mean", sd="std", min="min", max="max")
    bounds = bounds or (lambda lines: mean_interval(lines[value].tolist()))
    found = [bounds(lines) or (math.nan, math.nan) for _, lines in groups]
    return summary.reset_index().assign(
        lower=[float(lower) for lower, _ in found], upper=[float(upper) for _, upper in found]
    )


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


def grid_interval(grid: Array) -> ConfidenceInterval | None:
    """Return the percentile bootstrap interval of a mean over seeds and rows."""
    seeds, rows = grid.shape
    if seeds == 1:
        return mean_interval(grid[0])  # as `modnorm compare` of the same two runs
    by_seed, by_row = _weights(seeds, rows)
    return _percentile_interval(((by_seed @ grid) * by_row).sum(axis=1))


def mean_bounds(values: Sequence[float], rows: Sequence[object]) -> ConfidenceInterval | None:
    """Return the interval of a mean over seeds: over rows too if all seeds have such arrays."""
    known = [of_seed for of_seed in rows if isinstance(of_seed, np.ndarray)]
    agree = len(known) == len(values) and all(
        len(of_seed) == len(known[0]) and abs(of_seed.mean() - value) < _EQUAL
        for of_seed, value in zip(known, values, strict=True)
    )
    return grid_interval(np.stack(known)) if agree else mean_interval(values)


def term_intervals(pairs: pd.DataFrame) -> Mapping[str, ConfidenceInterval]:
    """Return the intervals of the mean terms in points; none unless all ensembles have equal rows.

    A line has the arrays `experts` and `correct` of both ensembles, with a value for each row.
    """
    sides = [[f"{prefix}{name}" for name in ("experts", "correct")] for prefix in ("", REFERENCE)]
    if len({len(votes) for name, _ in sides for votes in pairs[name]}) > 1:
        return {}
    by_seed, by_row = _weights(len(pairs), len(pairs["experts"].iloc[0]))
    terms = []
    for ensembles in zip(*(pairs[side].itertuples(index=False) for side in sides), strict=True):
        size = max(int(experts.max()) for experts, _ in ensembles)
        shares = [_shares(experts, correct, size, by_row) for experts, correct in ensembles]
        terms.append(split_terms(*shares[0], *shares[1]))
    support, voting = np.einsum("ts,snt->nt", by_seed, np.array(terms))
    found = zip(TERMS, (support, voting, support + voting), strict=True)
    return {name: _percentile_interval(values).percent for name, values in found}


def split_terms(p: Array, right: Array, p_other: Array, right_other: Array) -> tuple[Array, Array]:
    """Split the accuracy of one ensemble less that of another in support and voting terms.

    The last axis is m, the number of right experts; `right` is p(m) q(m). Where only one has rows
    with some m, both have its q(m), so that all of the difference counts as support (paper, eq.
    "support_symmetric_...").
    """
    with np.errstate(invalid="ignore"):
        q, q_other = right / p, right_other / p_other
    q, q_other = np.where(p > 0, q, q_other), np.where(p_other > 0, q_other, q)
    support = (p - p_other) * (q + q_other) / 2
    voting = (p + p_other) * (q - q_other) / 2
    return np.nansum(support, axis=-1), np.nansum(voting, axis=-1)


def _shares(experts: Array, correct: Array, size: int, by_row: Array) -> tuple[Array, Array]:
    """Return p(m) and p(m) q(m) of each resample."""
    is_m = experts[:, None] == np.arange(size + 1)
    is_right = is_m & (correct[:, None] > 0)
    return by_row @ is_m.astype(float), by_row @ is_right.astype(float)


@lru_cache(maxsize=4)
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


def support_counts(experts: ArrayLike, correct: ArrayLike, size: int) -> tuple[Array, Array]:
    """Return the rows with m = 0 to K right experts, and those of them whose vote is right."""
    m, right = np.asarray(experts, dtype=int), np.asarray(correct, dtype=float)
    ones = np.ones(len(m))
    rows, right_rows = (np.bincount(m, each, size + 1).astype(float) for each in (ones, right))
    return rows, right_rows


def support_bins(ensemble_size: int) -> tuple[range, ...]:
    """Return the ranges of m that the paper draws (fig. 5 (a)): 0, 1, 2-4, 5-9, 10 if K is 10.

    The ranges are: none, one, fewer than half, half or more, and all of the experts. With a small
    K, empty ranges are skipped.
    """
    edges = {0, 1, 2, -(-ensemble_size // 2), ensemble_size, ensemble_size + 1}
    return tuple(starmap(range, pairwise(sorted(edges))))


def bin_name(counts: range) -> str:
    """Return a range of m as text: its first and last number, or its only number."""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def survival(gains: ArrayLike, thresholds: ArrayLike) -> Array:
    """Return the fraction of candidates that gain at least each threshold; NaN without any.

    With accuracies this is the solution density delta(t) (eq. "solution_density"), with selection
    rewards p(tau) (app. "Tail-Implied Population Efficiency").
    """
    points = np.asarray(gains, dtype=float)[:, None]
    least = np.asarray(thresholds, dtype=float) - ROUNDING
    return (points >= least).mean(axis=0) if len(points) else np.full(least.shape, math.nan)


def cutoff(gains: "pd.Series[float]", selected: int) -> float:
    """Return the gain of the last of the `selected` best candidates; NaN with fewer."""
    known = gains.dropna()
    return float(known.nlargest(selected).iloc[-1]) if len(known) >= selected else math.nan


def required_population(
    hit_rate: float, *, hits: int = HITS, probability: float = 0.9
) -> int | None:
    """Return N_req: the least N with P[Bin(N, p) >= hits] >= probability.

    (App. "Tail-Implied Population Efficiency", eq. "tail_required_population".)
    """
    if hit_rate <= 0:
        return None
    # N draws hold `hits` hits exactly if the last of those comes after at most N - hits misses.
    return hits + int(scipy.stats.nbinom.ppf(probability, hits, hit_rate))
