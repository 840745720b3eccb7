"""Figures of a population prefix and of a vote."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modnorm.analysis.run_data import VoteRow
from modnorm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class PrefixStatistics:
    """Selection rewards of the scored candidates among the first N."""

    population: int
    scored: int
    mean: float
    sample_sd: float | None
    """None with fewer than two candidates."""
    density: float | None
    """Fraction of candidates strictly better than the base; None when the base is not known."""
    top1: float
    top5_mean: float | None
    """None with fewer than five candidates."""
    top10_mean: float | None
    """None with fewer than ten candidates."""
    p90: float
    p95: float
    p99: float
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
    """Fraction of rows that at least one expert answers right: what a perfect vote would reach."""
    correct_support: tuple[int, ...]
    """Rows by the number of experts that are right, 0 to K."""


def prefix_statistics(
    rewards: Sequence[float | None], population: int, base: float | None
) -> PrefixStatistics:
    """Summarise the first `population` candidates; failed ones (None) are left out.

    Args:
        rewards: Selection reward of each candidate, in candidate order.
        population: N, the prefix.
        base: Selection reward of the base.

    Raises:
        InvalidInputError: no candidate of the prefix is scored.
    """
    scored = [reward for reward in rewards[:population] if reward is not None]
    if not scored:
        raise InvalidInputError(f"none of the first {population} candidates is scored")
    best = sorted(scored, reverse=True)
    p90, p95, p99 = (float(q) for q in np.percentile(scored, (90, 95, 99)))
    return PrefixStatistics(
        population=population,
        scored=len(scored),
        mean=float(np.mean(scored)),
        sample_sd=float(np.std(scored, ddof=1)) if len(scored) > 1 else None,
        density=None if base is None else sum(r > base for r in scored) / len(scored),
        top1=best[0],
        top5_mean=_head_mean(best, 5),
        top10_mean=_head_mean(best, 10),
        p90=p90,
        p95=p95,
        p99=p99,
    )


def vote_agreement(votes: Sequence[VoteRow], ensemble_size: int) -> VoteAgreement:
    """Summarise the votes of one ensemble; at least one row."""
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
