"""Questions beyond the paper, answered from the recorded rewards and votes of finished runs.

Arrays of rewards have a line for each candidate and a column for each selection row. Each figure
is of one run; `resampled` gives the interval of its mean over seeds and rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from modnorm.analysis.seeds import split_terms
from modnorm.analysis.uncertainty import LEVEL, SEED, ConfidenceInterval
from modnorm.search.voting import Ballot, count_votes

Floats = NDArray[np.float64]
Indices = NDArray[np.int_]
Figure = Callable[[int, Floats], Floats]
"""Returns a figure of a seed for each line of weights: how often each row counts."""
RESAMPLES = 1000
STAGES = ((1.0, 50), (0.5, 100), (0.25, 200))
"""A race: the share of candidates that a stage scores, and the rows that it has scored then."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of candidates from a part of the rewards, against that from all of them."""

    chosen: tuple[int, ...]
    """Best first."""
    recall: float
    """Share of the full selection that it found."""
    lost: float
    """Mean reward of the full selection less that of the chosen, both on all rows."""
    cost: float
    """Evaluations over those of the full search."""


def best(rewards: Floats, count: int) -> Indices:
    """Return the candidates with the highest mean rewards; a lower index wins a tie.

    Means are rounded as in the search. Otherwise the order of a sum decides ties.
    """
    return np.argsort(-rewards.mean(axis=1).round(12), kind="stable")[:count]


def by_fewer_rows(rewards: Floats, count: int, rows: Indices) -> Selection:
    """Select by the rewards of some rows."""
    return _against_all(rewards, best(rewards[:, rows], count), len(rows) / rewards.shape[1])


def by_race(
    rewards: Floats, count: int, rows: Indices, stages: Sequence[tuple[float, int]] = STAGES
) -> Selection:
    """Select by a race: each stage scores further rows of the best candidates of the last one."""
    alive, scored, cost = np.arange(len(rewards)), 0, 0
    for share, upto in stages:
        kept = max(count, round(share * len(rewards)))
        if kept < len(alive):
            ranked = best(rewards[np.ix_(alive, rows[:scored])], kept)
            alive = np.sort(alive[ranked])
        cost += len(alive) * (upto - scored)
        scored = upto
    chosen = alive[best(rewards[np.ix_(alive, rows[:scored])], count)]
    return _against_all(rewards, chosen, cost / rewards.size)


def by_bounds(
    rewards: Floats, count: int, rows: Indices, *, step: int = 25, most: float = 1.0
) -> Selection:
    """Select by Wilson bounds: after each step, drop candidates surely not among the best.

    A candidate is dropped when its upper bound is below the `count`-th highest lower bound.
    """
    alive, cost, total = np.arange(len(rewards)), 0, rewards.shape[1]
    for scored in range(step, total + step, step):
        upto = min(scored, total)
        cost += len(alive) * (upto - (scored - step))
        lower, upper = _wilson(rewards[np.ix_(alive, rows[:upto])].mean(axis=1) / most, upto)
        if len(alive) > count:
            alive = alive[upper >= np.sort(lower)[-count]]
    chosen = alive[best(rewards[alive], count)]
    return _against_all(rewards, chosen, cost / rewards.size)


def _wilson(shares: Floats, count: int) -> tuple[Floats, Floats]:
    z = norm.ppf(0.5 + LEVEL / 2)
    middle = (shares + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(shares * (1 - shares) / count + (z / (2 * count)) ** 2)
    return middle - half, middle + half


def _against_all(rewards: Floats, chosen: Indices, cost: float) -> Selection:
    full, means = best(rewards, len(chosen)), rewards.mean(axis=1)
    return Selection(
        tuple(map(int, chosen)),
        recall=len({*full} & {*chosen}) / len(chosen),
        lost=float(means[full].mean() - means[chosen].mean()),
        cost=cost,
    )


def gain_terms(
    base_valid: Floats, base_right: Floats, valid: Floats, right: Floats, weights: Floats
) -> tuple[Floats, Floats]:
    """Split the gain of a vote over the base in coverage and agreement, fractions.

    An accuracy is the share of rows with a valid answer times theirs. Each array has a 1 or a 0
    for each row.
    """
    means = [
        (weights @ each / len(each))[:, None] for each in (valid, right, base_valid, base_right)
    ]
    return split_terms(*means)


def confident_accuracy(
    support: Floats, right: Floats, weights: Floats, unanswered: float
) -> Floats:
    """Return the accuracy of the rows that remain when those of least agreement are not answered.

    Rows of equal support are left out in equal parts.
    """
    answered = (1 - unanswered) * len(right)
    rows, found = np.zeros(len(weights)), np.zeros(len(weights))
    for level in np.unique(support)[::-1]:
        is_tied = support == level
        tied = weights @ is_tied
        taken = np.minimum(tied, answered - rows)
        share = np.divide(
            weights @ (is_tied * right), tied, out=np.zeros_like(tied), where=tied > 0
        )
        rows, found = rows + taken, found + taken * share
    return found / answered


def resampled(figure: Figure, seeds: int, rows: int) -> tuple[float, ConfidenceInterval | None]:
    """Return the mean of a figure over seeds, and its bootstrap interval over seeds and rows.

    The interval is None if some resample has no such figure, which is NaN then.
    """
    by_seed, by_row = _resamples(seeds, rows)
    means = sum(by_seed[:, seed] * figure(seed, by_row) for seed in range(seeds)) / seeds
    whole = np.ones((1, rows))
    value = float(np.mean([figure(seed, whole) for seed in range(seeds)]))
    if np.isnan(means).any():
        return value, None
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return value, ConfidenceInterval(float(low), float(high))


@cache
def _resamples(seeds: int, rows: int) -> tuple[Floats, Floats]:
    """Return how often each resample draws each seed and each row."""
    generator = np.random.default_rng(SEED)
    by_seed, by_row = np.empty((RESAMPLES, seeds)), np.empty((RESAMPLES, rows))
    for number in range(RESAMPLES):
        for shares, size in ((by_row, rows), (by_seed, seeds)):
            drawn = generator.integers(size, size=size)
            shares[number] = np.bincount(drawn, minlength=size)
    return by_seed, by_row


def known_accuracy(ballots: Mapping[int, Ballot], experts: Sequence[int]) -> float:
    """Return the accuracy of the vote of those experts, best first, that have ballots."""
    votes = count_votes([ballots[one] for one in experts if one in ballots])
    return fmean(vote.correct for vote in votes) if votes else math.nan
