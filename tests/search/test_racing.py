"""Candidates that take turns, with plain functions as their work, against the plain loop."""

from collections.abc import Callable
from contextvars import ContextVar
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import CancelledError
from modnorm.search.racing import Race, Turn
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import Bars, EarlyStop
from modnorm.tasks.protocol import RewardBounds

BOUNDS = RewardBounds(0.0, 1.0)
REWARDS = (0.0, 0.0, 0.1, 1.0)
ROWS = 5
NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


class Search:
    """Scores candidates row by row, several of which are open at once."""

    def __init__(self, table: list[list[float]], most: int, size: int, random: Random) -> None:
        self.table, self.most, self.random = table, most, random
        self.bars = Bars((len(table),), size)
        self.race = Race(most)
        self.turns: dict[int, Turn] = {}
        self.complete: dict[int, float] = {}
        self.out: list[int] = []
        self.went_on: list[int] = []

    def run(self) -> None:
        """Do all candidates, beginning some and going on with others at random."""
        pending = self.random.sample(range(len(self.table)), len(self.table))
        while pending or self.race.resting:
            assert self.race.active is None
            full = self.most > 0 and self.race.is_full
            if not pending or full or (self.race.resting and self.random.random() < 0.2):
                self.go_on()
            else:
                self.race.begin(self.work(pending.pop()))
            assert self.race.resting <= self.most

    def go_on(self) -> None:
        """Check which ones the race takes."""
        resting = dict(self.turns)
        out = {index for index, turn in resting.items() if turn.is_out()}
        others = sorted(
            set(resting) - out, key=lambda index: (-resting[index].standing, resting[index].number)
        )
        self.went_on.clear()
        self.race.go_on()
        assert set(self.went_on[: len(out)]) == out
        assert self.went_on[len(out) :] == others[:1]

    def work(self, index: int) -> Callable[[Turn], None]:
        """Return the scoring of a candidate."""

        def work(turn: Turn) -> None:
            stop = EarlyStop(index, BOUNDS, lambda: self.bars.of(index))
            known: list[float] = []
            for row in self.random.sample(range(ROWS), ROWS):
                assert self.race.active is turn
                if turn.is_due(len(known), ROWS):
                    self.turns[index] = turn
                    turn.rest(mean_reward(known), lambda: stop.decide(known, ROWS) is not None)
                    del self.turns[index]
                    assert self.race.active is turn
                    self.went_on.append(index)
                if stop.decide(known, ROWS) is not None:
                    self.out.append(index)
                    return
                known.append(self.table[index][row])
            assert index not in self.complete
            self.complete[index] = mean_reward(known)
            self.bars.complete(index, self.complete[index])

        return work


@st.composite
def tables(draw: st.DrawFn) -> list[list[float]]:
    """Draw the rewards of a few candidates, many of them equal."""
    row = st.lists(st.sampled_from(REWARDS), min_size=ROWS, max_size=ROWS)
    return draw(st.lists(row, min_size=1, max_size=14))


@given(tables(), st.integers(0, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_best_are_those_of_the_plain_loop(
    table: list[list[float]], most: int, size: int, random: Random
) -> None:
    search = Search(table, most, size, random)
    search.run()
    scores = {index: mean_reward(rewards) for index, rewards in enumerate(table)}
    assert sorted([*search.complete, *search.out]) == sorted(scores)
    assert search.complete.items() <= scores.items()

    def best(of: dict[int, float]) -> list[int]:
        return sorted(of, key=lambda index: (-of[index], index))[:size]

    assert best(search.complete) == best(scores)
    assert not search.turns


@pytest.mark.parametrize(
    ("most", "answered", "due"), [(1, 2, False), (1, 3, True), (1, 5, False), (0, 3, False)]
)
def test_a_candidate_rests_at_its_share_if_others_may_begin(
    most: int, answered: int, *, due: bool
) -> None:
    seen: list[bool] = []
    Race(most).begin(lambda turn: seen.append(turn.is_due(answered, 5)))
    assert seen == [due]


def rest_with(
    standing: float, said: list[str], name: str, *, out: bool = False
) -> Callable[[Turn], None]:
    """Return work that rests once and then says its name."""

    def work(turn: Turn) -> None:
        turn.rest(standing, lambda: out)
        said.append(name)
        assert not turn.is_due(3, 5)

    return work


def test_those_that_are_out_end_first_and_the_best_goes_on() -> None:
    said: list[str] = []
    race = Race(9)
    race.begin(rest_with(0.2, said, "low"))
    race.begin(rest_with(0.7, said, "first of two"))
    race.begin(rest_with(0.7, said, "second of two"))
    race.begin(rest_with(0.9, said, "out", out=True))
    race.begin(rest_with(0.1, said, "out too", out=True))
    race.go_on()
    assert said == ["out", "out too", "first of two"]
    race.go_on()
    race.go_on()
    assert said[3:] == ["second of two", "low"]
    assert race.resting == 0
    race.go_on()


def test_giving_up_ends_all_in_the_order_in_which_they_began() -> None:
    seen: list[tuple[str, BaseException]] = []
    race = Race(9)

    def caught(name: str) -> Callable[[Turn], None]:
        def work(turn: Turn) -> None:
            try:
                turn.rest(0.0, lambda: False)
            except CancelledError as error:
                seen.append((name, error))

        return work

    def give_up(turn: Turn) -> None:
        race.give_up(error)
        assert race.active is turn
        seen.append(("active", error))

    error = CancelledError("enough")
    for name in "ab":
        race.begin(caught(name))
    race.begin(give_up)
    race.begin(caught("c"))
    race.give_up(error)
    assert seen == [(name, error) for name in ("a", "b", "active", "c")]
    assert race.resting == 0
    assert race.active is None


def test_errors_go_through_to_whoever_has_it_work() -> None:
    race = Race(2)

    def fail(turn: Turn) -> None:
        raise CancelledError(str(turn.number))

    def fail_later(turn: Turn) -> None:
        turn.rest(0.0, lambda: False)
        fail(turn)

    with pytest.raises(CancelledError, match="0"):
        race.begin(fail)
    assert race.active is None
    race.begin(fail_later)
    with pytest.raises(CancelledError, match="1"):
        race.go_on()
    assert race.active is None
    assert race.resting == 0
    race.begin(fail_later)
    with pytest.raises(CancelledError, match="enough"):
        race.give_up(CancelledError("enough"))
    assert race.resting == 0


def test_one_that_cannot_tell_whether_it_is_out_says_so_itself() -> None:
    race = Race(2)
    told: list[str] = []

    def cannot_tell() -> bool:
        raise CancelledError("not judged")

    def work(turn: Turn) -> None:
        turn.rest(0.0, cannot_tell)
        with pytest.raises(CancelledError):
            cannot_tell()
        told.append("failed")

    race.begin(work)
    race.begin(rest_with(0.5, told, "the other"))
    race.go_on()
    assert told == ["failed", "the other"]


def test_one_that_is_out_may_give_the_others_up() -> None:
    race = Race(3)
    said: list[str] = []

    def give_up(turn: Turn) -> None:
        turn.rest(0.0, lambda: True)
        race.give_up(CancelledError("a broken engine"))

    def give_way(turn: Turn) -> None:
        with pytest.raises(CancelledError):
            turn.rest(0.0, lambda: True)
        said.append("gave way")

    race.begin(give_up)
    race.begin(give_way)
    race.go_on()
    assert said == ["gave way"]
    assert race.resting == 0


def test_work_runs_in_the_context_of_whoever_began_it() -> None:
    race = Race(2)
    seen: list[str] = []

    def work(turn: Turn) -> None:
        name = NAME.get()
        turn.rest(0.0, lambda: False)
        seen.append(f"{name} then {NAME.get()}")
        NAME.set("changed")

    for name in "ab":
        token = NAME.set(name)
        race.begin(work)
        NAME.reset(token)
    race.go_on()
    race.go_on()
    assert seen == ["a then a", "b then b"]
    assert NAME.get() == "nobody"


def test_a_turn_does_not_rest_outside_of_its_work() -> None:
    with pytest.raises(AssertionError):
        Turn(Race(1), 0).rest(0.0, lambda: False)
