"""Confidence intervals of accuracies and means, and the exact test of paired rows, by scipy."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

LEVEL = 0.95
"""Confidence level of all intervals; tests use 1 - LEVEL."""
RESAMPLES = 2000
SEED = 0
"""Seed of the bootstrap: equal data give equal intervals."""
_WHOLE = 1e-6


class ConfidenceInterval(NamedTuple):
    """A 95 % interval, in the unit of its value."""

    lower: float
    upper: float

    @property
    def percent(self) -> "ConfidenceInterval":
        """The interval of a fraction in percent."""
        return ConfidenceInterval(100 * self.lower, 100 * self.upper)


def accuracy_interval(
    accuracy: float | None, rows: int, correct: int | None = None
) -> ConfidenceInterval | None:
    """Return the Wilson interval of an accuracy."""
    if accuracy is None or rows < 1:
        return None
    right = round(accuracy * rows)
    if abs(accuracy * rows - right) > _WHOLE or correct not in {None, right}:
        return None
    return _wilson(right, rows)


def mean_interval(values: Sequence[float]) -> ConfidenceInterval | None:
    """Return the percentile bootstrap interval of a mean; None with fewer than two values."""
    if len(values) < 2:
        return None
    found = scipy.stats.bootstrap(
        (np.asarray(values, dtype=float),),
        np.mean,
        n_resamples=RESAMPLES,
        batch=100,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return ConfidenceInterval(float(found.low), float(found.high))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, adjusted by Holm's step-down method, in their order.

    Rejecting where the result is below 5 % rejects any true hypothesis with at most 5 % chance.
    """
    order = np.argsort(p_values, kind="stable")
    tests = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(tests * np.asarray(p_values)[order]).clip(max=1)
    return [float(one) for one in adjusted]


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test: do two runs differ on the same rows?"""
    discordant = only_first + only_second
    return float(scipy.stats.binomtest(only_first, discordant).pvalue) if discordant else 1.0


def sign_flip(differences: Sequence[int]) -> float:
    """Return the p-value of the exact test that paired differences are symmetric around zero.

    With differences of -1, 0 and 1 it is McNemar's exact test.
    """
    sizes = np.abs(np.asarray(differences, dtype=int))
    chances = np.ones(1)
    for size, count in zip(*np.unique(sizes[sizes > 0], return_counts=True), strict=True):
        flips = scipy.stats.binom.pmf(np.arange(count + 1), count, 0.5)
        spread = np.zeros(2 * int(size) * int(count) + 1)
        spread[:: 2 * int(size)] = flips
        chances = np.convolve(chances, spread)
    reach = len(chances) // 2
    at_least = np.abs(np.arange(-reach, reach + 1)) >= abs(int(np.sum(differences)))
    return min(1.0, float(chances[at_least].sum()))


@lru_cache(maxsize=4096)
def _wilson(right: int, rows: int) -> ConfidenceInterval:
    """Return the Wilson interval; scipy takes a millisecond, and analyses repeat counts."""
    found = scipy.stats.binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
    return ConfidenceInterval(float(found.low), float(found.high))
