"""The exact early stop: who can still be among the K best.

A candidate is stopped once K complete ones rank before it even if all that is missing of it is
right. Ties keep candidate order, as in the ranking.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from benchmarks.gpu_search.workload import BEST_REWARD

Place = tuple[float, int]
"""Negated score and index: smaller ranks before."""


def floor_of(scores: Mapping[int, float], experts: int) -> Place | None:
    """Return the place of the K-th best complete candidate; None while there are fewer."""
    places = sorted((-score, index) for index, score in scores.items())
    return places[experts - 1] if len(places) >= experts else None


def is_hopeless(candidate: int, rewards: Sequence[float], rows: int, floor: Place | None) -> bool:
    """Whether a candidate ranks behind the floor even if all that is missing is right.

    Args:
        candidate: Its index.
        rewards: Rewards of the answers that are complete.
        rows: All of its rows.
        floor: Place of the K-th best complete candidate.
    """
    if floor is None:
        return False
    best = fsum([*rewards, *[BEST_REWARD] * (rows - len(rewards))]) / rows
    return (-best, candidate) > floor


def top(scores: Mapping[int, float], experts: int) -> tuple[int, ...]:
    """Return the K best candidates, best first."""
    return tuple(index for _, index in sorted((-s, i) for i, s in scores.items())[:experts])
