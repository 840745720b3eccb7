"""Exact early stop: which candidates need not be scored to their end.

Experts are the K best of the first N candidates (`modnorm.search.ranking`: the higher score first,
the lower index first on ties), for some N and K. A candidate is out of all of them once, for every
N that includes it and for the largest K, that many candidates with complete scores rank before the
best score that it can still reach. Complete scores never vanish and never change, so what is once
out stays out, whatever else is scored, fails, is stopped or is done again: a stop that was decided
on few complete scores is as exact as one that was decided on all of them.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.search.ranking import mean_reward
from modnorm.tasks.protocol import RewardBounds

_Key = tuple[float, int]
"""Negated score and index: sorts as candidates rank."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The weakest place that still counts: a complete score and the candidate that has it."""

    reward: float
    index: int

    def shuts_out(self, reward: float, index: int) -> bool:
        """Tell whether a candidate with this score ranks after the place."""
        return (-self.reward, self.index) < (-reward, index)


class Bars:
    """The bar of every candidate, kept up to date as scores become complete.

    Bars only rise. With fewer complete scores than there are they are lower, and still exact.

    Args:
        prefixes: The reported population sizes N, ascending.
        size: The largest ensemble size K.
    """

    def __init__(self, prefixes: Sequence[int], size: int) -> None:
        self._prefixes = tuple(prefixes)
        self._size = size
        self._best: tuple[list[_Key], ...] = tuple([] for _ in self._prefixes)

    def complete(self, index: int, reward: float) -> None:
        """Take in a complete score; one that is known already changes nothing.

        Args:
            index: The candidate; that of the base, which is negative, is left out.
            reward: Its mean selection reward.
        """
        if index < 0:
            return
        key = (-reward, index)
        for prefix, best in zip(self._prefixes, self._best, strict=True):
            if index < prefix:
                place = bisect_left(best, key)
                if best[place : place + 1] != [key]:
                    best.insert(place, key)
                    del best[self._size :]

    def of(self, index: int) -> Bar | None:
        """Return the bar of a candidate; None where it has none, as the base never has.

        The candidate has to rank after the K-th best of every prefix that includes it. Of these
        the smallest prefix has the weakest, since its candidates are in the others too. May be
        called while another thread takes scores in: it then returns the bar before or after.
        """
        if index < 0:
            return None
        for prefix, best in zip(self._prefixes, self._best, strict=True):
            if index < prefix:
                full, last = len(best) == self._size, best[-1] if best else (0.0, 0)
                return Bar(-last[0], last[1]) if full else None
        return None


@dataclass(frozen=True, slots=True)
class Interval:
    """Between which values a score lies that is not known to its end, both included."""

    lower: float
    upper: float


def score_interval(rewards: Sequence[float], rows: int, bounds: RewardBounds) -> Interval:
    """Return what a score can still become, in the arithmetic of `mean_reward`.

    `mean_reward` never falls when a reward grows, rounded as it is: the complete score, as it will
    be compared, lies in the interval.

    Args:
        rewards: The rewards that are known, in any order.
        rows: Number of selection rows; at least that many as rewards, at least one.
        bounds: What the others can be.

    Raises:
        InvalidInputError: there are more rewards than rows, or no rows.
        IncompatibleError: a reward is out of bounds.
    """
    unknown = rows - len(rewards)
    if unknown < 0:
        raise InvalidInputError(f"{len(rewards)} rewards for {rows} rows", field="rewards")
    for reward in rewards:
        if not bounds.least <= reward <= bounds.largest:
            raise IncompatibleError(
                f"the task states rewards from {bounds.least:g} to {bounds.largest:g} and gave "
                f"{reward:g}",
                remedy="correct its reward_bounds, or leave the statement out",
            )
    lower, upper = (
        mean_reward([*rewards, *[value] * unknown]) for value in (bounds.least, bounds.largest)
    )
    return Interval(lower, upper)


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """When to stop scoring a candidate."""

    index: int
    """The candidate."""
    bounds: RewardBounds
    """What rewards of the task can be."""
    bar: Callable[[], Bar | None]
    """Returns the bar as it is now; from any thread, and often."""

    def decide(self, rewards: Sequence[float], rows: int) -> Interval | None:
        """Return the interval of a score that is out of every top K; None while it is not.

        Args:
            rewards: The rewards that are known.
            rows: Number of selection rows.

        Raises:
            IncompatibleError: a reward is out of bounds.
        """
        interval = score_interval(rewards, rows, self.bounds)
        bar = self.bar()
        out = bar is not None and bar.shuts_out(interval.upper, self.index)
        return interval if out else None


def certain_ranks(
    rewards: Sequence[float | None], stopped: Mapping[int, Interval]
) -> dict[int, int]:
    """Return the rank of each scored candidate in the whole population, where it is certain.

    Args:
        rewards: Complete score of each candidate, in candidate order; None where there is none.
        stopped: Intervals of those that were stopped early.

    Returns:
        Ranks from 1, by candidate, in ranking order; left out where a stopped candidate may rank
        before or after.
    """
    order = sorted((-reward, index) for index, reward in enumerate(rewards) if reward is not None)
    surely = sorted((-interval.lower, index) for index, interval in stopped.items())
    perhaps = sorted((-interval.upper, index) for index, interval in stopped.items())
    ranks = {}
    for place, key in enumerate(order, 1):
        before = bisect_left(surely, key)
        if before == bisect_left(perhaps, key):
            ranks[key[1]] = place + before
    return ranks
