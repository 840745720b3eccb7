"""The scheduler with plain functions as work, compared with the plain loop."""

from collections.abc import Callable
from contextvars import ContextVar
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import CancelledError
from modnorm.search.ranking import mean_reward
from modnorm.search.scheduling import Scheduler, Turn
from modnorm.search.stopping import EarlyStop, Thresholds
from modnorm.tasks.protocol import RewardBounds

BOUNDS = RewardBounds(0.0, 1.0)
REWARDS = (0.0, 0.0, 0.1, 1.0)
ROWS = 5
NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


class Search:
    """Scores several open candidates row by row."""

    def __init__(self, table: list[list[float]], limit: int, size: int, random: Random) -> None:
        self.table, self.limit, self.random = table, limit, random
        self.thresholds = Thresholds((len(table),), size)
        self.scheduler = Scheduler(limit)
        self.turns: dict[int, Turn] = {}
        self.complete: dict[int, float] = {}
        self.excluded: list[int] = []
        self.resumed: list[int] = []

    def run(self) -> None:
        """Score all candidates; begin one or resume one at random."""
        pending = self.random.sample(range(len(self.table)), len(self.table))
        while pending or self.scheduler.parked:
            assert self.scheduler.active is None
            full = self.limit > 0 and self.scheduler.is_full
            if not pending or full or (self.scheduler.parked and self.random.random() < 0.2):
                self.resume_best()
            else:
                self.scheduler.begin(self.work(pending.pop()))
            assert self.scheduler.parked <= self.limit

    def resume_best(self) -> None:
        """Resume, and check which candidates the scheduler chose."""
        parked = dict(self.turns)
        excluded = {index for index, turn in parked.items() if turn.is_excluded()}
        others = sorted(
            set(parked) - excluded,
            key=lambda index: (-parked[index].mean_reward, parked[index].number),
        )
        self.resumed.clear()
        self.scheduler.resume_best()
        assert set(self.resumed[: len(excluded)]) == excluded
        assert self.resumed[len(excluded) :] == others[:1]

    def work(self, index: int) -> Callable[[Turn], None]:
        """Return the function that scores a candidate."""

        def work(turn: Turn) -> None:
            stop = EarlyStop(index, BOUNDS, lambda: self.thresholds.of(index))
            rewards: list[float] = []
            for row in self.random.sample(range(ROWS), ROWS):
                assert self.scheduler.active is turn
                if turn.is_due(len(rewards), ROWS):
                    self.turns[index] = turn
                    turn.park(mean_reward(rewards), lambda: stop.decide(rewards, ROWS) is not None)
                    del self.turns[index]
                    assert self.scheduler.active is turn
                    self.resumed.append(index)
                if stop.decide(rewards, ROWS) is not None:
                    self.excluded.append(index)
                    return
                rewards.append(self.table[index][row])
            assert index not in self.complete
            self.complete[index] = mean_reward(rewards)
            self.thresholds.add(index, self.complete[index])

        return work


@st.composite
def tables(draw: st.DrawFn) -> list[list[float]]:
    """Draw the rewards of a few candidates, many of them equal."""
    row = st.lists(st.sampled_from(REWARDS), min_size=ROWS, max_size=ROWS)
    return draw(st.lists(row, min_size=1, max_size=14))


@given(tables(), st.integers(0, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_best_are_those_of_the_plain_loop(
    table: list[list[float]], limit: int, size: int, random: Random
) -> None:
    search = Search(table, limit, size, random)
    search.run()
    scores = {index: mean_reward(rewards) for index, rewards in enumerate(table)}
    assert sorted([*search.complete, *search.excluded]) == sorted(scores)
    assert search.complete.items() <= scores.items()

    def best(of: dict[int, float]) -> list[int]:
        return sorted(of, key=lambda index: (-of[index], index))[:size]

    assert best(search.complete) == best(scores)
    assert not search.turns


@pytest.mark.parametrize(
    ("limit", "answered", "due"), [(1, 2, False), (1, 3, True), (1, 5, False), (0, 3, False)]
)
def test_a_candidate_is_parked_at_its_share_if_others_may_begin(
    limit: int, answered: int, *, due: bool
) -> None:
    seen: list[bool] = []
    Scheduler(limit).begin(lambda turn: seen.append(turn.is_due(answered, 5)))
    assert seen == [due]


def parked_with(
    reward: float, finished: list[str], name: str, *, excluded: bool = False
) -> Callable[[Turn], None]:
    """Return work that is parked once and then appends its name."""

    def work(turn: Turn) -> None:
        turn.park(reward, lambda: excluded)
        finished.append(name)
        assert not turn.is_due(3, 5)

    return work


def test_excluded_candidates_end_first_and_the_best_one_resumes() -> None:
    finished: list[str] = []
    scheduler = Scheduler(9)
    scheduler.begin(parked_with(0.2, finished, "low"))
    scheduler.begin(parked_with(0.7, finished, "first of two"))
    scheduler.begin(parked_with(0.7, finished, "second of two"))
    scheduler.begin(parked_with(0.9, finished, "excluded", excluded=True))
    scheduler.begin(parked_with(0.1, finished, "excluded too", excluded=True))
    scheduler.resume_best()
    assert finished == ["excluded", "excluded too", "first of two"]
    scheduler.resume_best()
    scheduler.resume_best()
    assert finished[3:] == ["second of two", "low"]
    assert scheduler.parked == 0
    scheduler.resume_best()


def test_abandon_ends_all_candidates_in_the_order_in_which_they_began() -> None:
    seen: list[tuple[str, BaseException]] = []
    scheduler = Scheduler(9)

    def caught(name: str) -> Callable[[Turn], None]:
        def work(turn: Turn) -> None:
            try:
                turn.park(0.0, lambda: False)
            except CancelledError as error:
                seen.append((name, error))

        return work

    def abandon(turn: Turn) -> None:
        scheduler.abandon(error)
        assert scheduler.active is turn
        seen.append(("active", error))

    error = CancelledError("enough")
    for name in "ab":
        scheduler.begin(caught(name))
    scheduler.begin(abandon)
    scheduler.begin(caught("c"))
    scheduler.abandon(error)
    assert seen == [(name, error) for name in ("a", "b", "active", "c")]
    assert scheduler.parked == 0
    assert scheduler.active is None


def test_errors_propagate_to_the_caller() -> None:
    scheduler = Scheduler(2)

    def fail(turn: Turn) -> None:
        raise CancelledError(str(turn.number))

    def fail_later(turn: Turn) -> None:
        turn.park(0.0, lambda: False)
        fail(turn)

    with pytest.raises(CancelledError, match="0"):
        scheduler.begin(fail)
    assert scheduler.active is None
    scheduler.begin(fail_later)
    with pytest.raises(CancelledError, match="1"):
        scheduler.resume_best()
    assert scheduler.active is None
    assert scheduler.parked == 0
    scheduler.begin(fail_later)
    with pytest.raises(CancelledError, match="enough"):
        scheduler.abandon(CancelledError("enough"))
    assert scheduler.parked == 0


def test_an_excluded_candidate_may_abandon_the_others() -> None:
    scheduler = Scheduler(3)
    finished: list[str] = []

    def abandon(turn: Turn) -> None:
        turn.park(0.0, lambda: True)
        scheduler.abandon(CancelledError("a broken engine"))

    def is_abandoned(turn: Turn) -> None:
        with pytest.raises(CancelledError):
            turn.park(0.0, lambda: True)
        finished.append("abandoned")

    scheduler.begin(abandon)
    scheduler.begin(is_abandoned)
    scheduler.resume_best()
    assert finished == ["abandoned"]
    assert scheduler.parked == 0


def test_work_runs_in_the_context_of_its_beginning() -> None:
    scheduler = Scheduler(2)
    seen: list[str] = []

    def work(turn: Turn) -> None:
        name = NAME.get()
        turn.park(0.0, lambda: False)
        seen.append(f"{name} then {NAME.get()}")
        NAME.set("changed")

    for name in "ab":
        token = NAME.set(name)
        scheduler.begin(work)
        NAME.reset(token)
    scheduler.resume_best()
    scheduler.resume_best()
    assert seen == ["a then a", "b then b"]
    assert NAME.get() == "nobody"
