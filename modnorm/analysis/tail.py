"""The upper tail of a population: gains, survival, and the population that a tail predicts.

Gains are over the unperturbed model and in percentage points. Rewards are means of a few hundred
rows, so a gain may miss an equal threshold by a rounding error. Comparisons allow for one.
"""

from collections.abc import Sequence

from scipy import stats

from modnorm.errors import InvalidInputError

ROUNDING = 1e-9
"""Percentage points by which a gain may miss a threshold that it equals."""


def gains(scores: Sequence[float], base: float) -> tuple[float, ...]:
    """Return the gains of candidates in percentage points; scores and base are fractions."""
    return tuple(100 * (score - base) for score in scores)


def survival(points: Sequence[float], thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return the fraction of candidates that gain at least each threshold.

    With accuracies this is the solution density delta(t) (eq. "solution_density"), with selection
    rewards p(tau) (app. "Tail-Implied Population Efficiency").

    Args:
        points: Gain of each candidate, at least one.
        thresholds: In percentage points.

    Raises:
        InvalidInputError: there are no candidates.
    """
    if not points:
        raise InvalidInputError(
            "a survival curve needs at least one scored candidate",
            field="candidates",
            remedy="name a run in which at least one candidate was scored",
        )
    return tuple(
        sum(point >= threshold - ROUNDING for point in points) / len(points)
        for threshold in thresholds
    )


def cutoff(points: Sequence[float], selected: int) -> float:
    """Return the gain of the last of the `selected` best candidates.

    Raises:
        InvalidInputError: there are fewer candidates.
    """
    if not 1 <= selected <= len(points):
        raise InvalidInputError(
            f"the {selected} best candidates were requested, but {len(points)} have a score",
            field="selected",
            remedy=f"choose a number from 1 to {len(points)}",
        )
    return sorted(points, reverse=True)[selected - 1]


def required_population(
    hit_rate: float, *, hits: int = 10, probability: float = 0.9
) -> int | None:
    """Return N_req: the least N with P[Bin(N, p) >= hits] >= probability.

    (App. "Tail-Implied Population Efficiency", eq. "tail_required_population".)

    Args:
        hit_rate: p, the fraction of candidates above the threshold.
        hits: Number of candidates required above it.
        probability: Least probability of that.

    Returns:
        N; None when no candidate is above the threshold, so that no N is enough.
    """
    if hit_rate <= 0:
        return None
    # N draws hold `hits` hits exactly if the last of those comes after at most N - hits misses.
    return hits + int(stats.nbinom.ppf(probability, hits, hit_rate))
