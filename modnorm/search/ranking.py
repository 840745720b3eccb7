"""Candidate scores, their ranking and the experts of every (N, K) (paper, eq. "candidate score").

Ties keep candidate order. The score of a failed candidate is None; it gets no rank.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from modnorm.errors import InvalidInputError, PreconditionError

_DECIMALS = 12
"""Decimals of a mean reward."""

Selection = Mapping[tuple[int, int], tuple[int, ...]]
"""Experts of each (N, K): candidate indices, best first."""


def mean_reward(rewards: Sequence[float]) -> float:
    """Return R_i, the mean selection reward of one candidate, from an exact sum.

    It is rounded to twelve decimals. Rewards like 1.1 are not exact in binary: without rounding,
    equal sums could differ in the last bit and would not tie. Rounding keeps the order of scores.
    """
    if not rewards:
        raise InvalidInputError("no rewards to average", field="task.selection")
    return round(math.fsum(rewards) / len(rewards), _DECIMALS)


def rank(rewards: Sequence[float | None], population: int) -> tuple[int, ...]:
    """Return the scored candidates among the first `population`, best first."""
    if population > len(rewards):
        raise PreconditionError(
            f"only {len(rewards)} of {population} candidates exist", field="population.size"
        )
    scored = [(-reward, i) for i, reward in enumerate(rewards[:population]) if reward is not None]
    for negated, index in scored:
        if not math.isfinite(negated):
            raise InvalidInputError(f"the score of candidate {index} is not finite")
    return tuple(index for _, index in sorted(scored))


def select_experts(
    rewards: Sequence[float | None], prefixes: Iterable[int], ensemble_sizes: Sequence[int]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the experts of every (N, K): the K best of the first N candidates, best first."""
    selection = {}
    for population in prefixes:
        order = rank(rewards, population)
        for size in ensemble_sizes:
            if len(order) < size:
                raise PreconditionError(
                    f"K = {size} needs {size} scored candidates, but only {len(order)} of the "
                    f"first {population} are scored",
                    field="population.ensemble_sizes",
                )
            selection[population, size] = order[:size]
    return selection


def expert_union(selection: Selection) -> tuple[int, ...]:
    """Return every expert of any (N, K) once, ascending."""
    return tuple(sorted({index for experts in selection.values() for index in experts}))
