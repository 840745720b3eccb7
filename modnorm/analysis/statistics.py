"""Statistics of a population prefix and of a vote."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modnorm.analysis.run_data import VoteRow
from modnorm.errors import InvalidInputError
from modnorm.search.stopping import Interval


@dataclass(frozen=True, slots=True)
class PrefixStatistics:
    """Selection rewards among the first N candidates; failed ones are excluded.

    Figures are None if they depend on the unknown scores of stopped candidates.
    """

    population: int
    scored: int
    """Candidates with a complete score."""
    stopped: int
    """Candidates that were stopped early."""
    mean: float | None
    sample_sd: float | None
    """None with fewer than two candidates, too."""
    density: float | None
    """Fraction of candidates strictly better than the base; None when the base is not known."""
    top1: float | None
    top5_mean: float | None
    """None with fewer than five candidates, too."""
    top10_mean: float | None
    """None with fewer than ten candidates, too."""
    p90: float | None
    p95: float | None
    p99: float | None
    """Percentiles with linear interpolation."""


@dataclass(frozen=True, slots=True)
class VoteAgreement:
    """How far the K experts of an ensemble agree on the held-out rows."""

    mean_valid: float
    """Valid answers a row."""
    mean_support: float | None
    """Mean share of the valid answers that the winner has; None without any valid answer."""
    unanimous: float
    """Fraction of rows on which all K experts give the same answer."""
    no_vote: float
    """Fraction of rows without any valid answer."""
    any_correct: float
    """Fraction of rows that at least one expert answers right, the accuracy of a perfect vote."""
    correct_support: tuple[int, ...]
    """Rows by the number of experts that are right, 0 to K."""


def prefix_statistics(
    rewards: Sequence[float | None],
    population: int,
    base: float | None,
    stopped: Mapping[int, Interval] = MappingProxyType({}),
) -> PrefixStatistics:
    """Summarise the first `population` candidates; failed ones are excluded."""
    scored = [reward for reward in rewards[:population] if reward is not None]
    if not scored:
        raise InvalidInputError(f"none of the first {population} candidates is scored")
    open_ended = [interval for index, interval in stopped.items() if index < population]
    low = _figures([*scored, *(interval.lower for interval in open_ended)], base)
    high = _figures([*scored, *(interval.upper for interval in open_ended)], base)
    # Figures increase with rewards: a figure with equal bounds is known.
    known = {name: value if value == high[name] else None for name, value in low.items()}
    spread = float(np.std(scored, ddof=1)) if len(scored) > 1 and not open_ended else None
    return PrefixStatistics(
        population=population,
        scored=len(scored),
        stopped=len(open_ended),
        sample_sd=spread,
        **known,
    )


def _figures(rewards: Sequence[float], base: float | None) -> dict[str, float | None]:
    """Return the figures that increase with each reward, by name."""
    best = sorted(rewards, reverse=True)
    p90, p95, p99 = (float(q) for q in np.percentile(rewards, (90, 95, 99)))
    return {
        "mean": float(np.mean(rewards)),
        "density": None if base is None else sum(r > base for r in rewards) / len(rewards),
        "top1": best[0],
        "top5_mean": _head_mean(best, 5),
        "top10_mean": _head_mean(best, 10),
        "p90": p90,
        "p95": p95,
        "p99": p99,
    }


def vote_agreement(votes: Sequence[VoteRow], ensemble_size: int) -> VoteAgreement:
    """Summarise the votes of one ensemble on at least one row; every expert answered all rows."""
    rows = len(votes)
    shares = [vote.support / vote.valid for vote in votes if vote.valid]
    right = Counter(vote.correct_support for vote in votes)
    return VoteAgreement(
        mean_valid=sum(vote.valid for vote in votes) / rows,
        mean_support=sum(shares) / len(shares) if shares else None,
        unanimous=sum(vote.support == ensemble_size for vote in votes) / rows,
        no_vote=sum(vote.valid == 0 for vote in votes) / rows,
        any_correct=sum(vote.correct_support > 0 for vote in votes) / rows,
        correct_support=tuple(right[count] for count in range(ensemble_size + 1)),
    )


def _head_mean(best: Sequence[float], count: int) -> float | None:
    return float(np.mean(best[:count])) if len(best) >= count else None
