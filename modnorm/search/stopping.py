"""Exact early stop: it ends candidates that can be no expert any more.

Experts are the K best of the first N candidates, for each reported N and K (`ranking`: the higher
score first, on ties the lower index). In one N, a candidate is excluded once K complete scores
rank before its best possible score. It is stopped once this holds for the largest K in every N
that includes it. Complete scores never change, so an excluded candidate stays excluded. A stop
decided with few complete scores is therefore as exact as one decided with all of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.search.ranking import mean_reward
from modnorm.tasks.protocol import RewardBounds

_Key = tuple[float, int]
"""Negated score and index; sorts as candidates rank."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The weakest complete score that still makes a candidate an expert."""

    reward: float
    index: int
    """The candidate that has this score."""

    def excludes(self, reward: float, index: int) -> bool:
        """Return whether a candidate with this score ranks after the threshold."""
        return (-self.reward, self.index) < (-reward, index)


class Thresholds:
    """The threshold of every candidate, updated as scores become complete."""

    def __init__(self, prefixes: Sequence[int], size: int) -> None:
        self._prefixes = tuple(prefixes)
        self._size = size
        self._best: tuple[list[_Key], ...] = tuple([] for _ in self._prefixes)

    def add(self, index: int, reward: float) -> None:
        """Add a complete score; a repeated score changes nothing."""
        if index < 0:
            return
        key = (-reward, index)
        for prefix, best in zip(self._prefixes, self._best, strict=True):
            if index < prefix:
                place = bisect_left(best, key)
                if best[place : place + 1] != [key]:
                    best.insert(place, key)
                    del best[self._size :]

    def of(self, index: int) -> Threshold | None:
        """Return the threshold of a candidate; None if it has none. The base never has one.

        An excluded candidate ranks after the K-th best of every prefix that includes it. The
        smallest such prefix decides, since larger ones contain its candidates. May be called while
        another thread adds scores: it returns the threshold before or after.
        """
        if index < 0:
            return None
        for prefix, best in zip(self._prefixes, self._best, strict=True):
            if index < prefix:
                if len(best) < self._size:
                    return None
                negated, last = best[self._size - 1]  # `add` may have inserted one more
                return Threshold(-negated, last)
        return None


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a score that is not complete, both included."""

    lower: float
    upper: float


def score_interval(rewards: Sequence[float], rows: int, bounds: RewardBounds) -> Interval:
    """Return the interval in which the complete score lies, in the arithmetic of `mean_reward`.

    It is exact: `mean_reward`, with its rounding, never falls when a reward grows.
    """
    unknown = rows - len(rewards)
    if unknown < 0:
        raise InvalidInputError(f"{len(rewards)} rewards for {rows} rows", field="rewards")
    for reward in rewards:
        if not bounds.least <= reward <= bounds.largest:
            raise IncompatibleError(
                f"the task states rewards from {bounds.least:g} to {bounds.largest:g} and gave "
                f"{reward:g}",
                remedy="correct its reward_bounds, or remove them",
            )
    lower, upper = (
        mean_reward([*rewards, *[value] * unknown]) for value in (bounds.least, bounds.largest)
    )
    return Interval(lower, upper)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Decides when to stop scoring a candidate."""

    index: int
    """The candidate."""
    bounds: RewardBounds
    """Bounds of the task's rewards."""
    threshold: Callable[[], Threshold | None]
    """Returns the current threshold; called often, from any thread."""

    def decide(self, rewards: Sequence[float], rows: int) -> Interval | None:
        """Return the score's interval if the candidate is excluded, otherwise None."""
        interval = score_interval(rewards, rows, self.bounds)
        threshold = self.threshold()
        excluded = threshold is not None and threshold.excludes(interval.upper, self.index)
        return interval if excluded else None


def certain_ranks(
    rewards: Sequence[float | None], stopped: Mapping[int, Interval]
) -> dict[int, int]:
    """Return the ranks that no stopped candidate can change, in the whole population."""
    order = sorted((-reward, index) for index, reward in enumerate(rewards) if reward is not None)
    if not stopped:
        return {index: place for place, (_, index) in enumerate(order, 1)}
    surely = sorted((-interval.lower, index) for index, interval in stopped.items())
    perhaps = sorted((-interval.upper, index) for index, interval in stopped.items())
    ranks = {}
    for place, key in enumerate(order, 1):
        before = bisect_left(surely, key)
        if before == bisect_left(perhaps, key):
            ranks[key[1]] = place + before
    return ranks
