from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest

from modnorm.engines import Completion
from modnorm.engines.protocol import Finish
from modnorm.search.judging import Judging
from modnorm.search.racing import Race, Turn
from modnorm.search.watching import OutOfReachError, Rest
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown

ROW: Row = {"numbers": [1, 2], "target": 3}


class GivenUpError(Exception):
    """What a race is given up with."""


def _never() -> bool:
    return False


def _always() -> bool:
    return True


def _fail() -> bool:
    raise RuntimeError("its judge failed")


@pytest.fixture
def ended() -> list[str]:
    return []


def _begin(
    race: Race,
    ended: list[str],
    name: str,
    is_out: Callable[[], bool] = _never,
    then: Callable[[], None] = lambda: None,
) -> None:
    def work(turn: Turn) -> None:
        try:
            turn.rest(0.0, is_out)
        finally:
            ended.append(name)
            then()

    race.begin(work)


def test_a_look_that_fails_is_met_by_the_work_of_its_own_turn(ended: list[str]) -> None:
    race = Race(2)
    _begin(race, ended, "a")
    _begin(race, ended, "b", _fail)
    race.go_on()
    assert ended == ["b", "a"]
    assert not race.resting


@pytest.mark.parametrize("first", [_always, _fail])
def test_one_that_is_out_may_give_up_the_others_that_are(
    first: Callable[[], bool], ended: list[str]
) -> None:
    race = Race(3)

    def give_up() -> None:
        race.give_up(GivenUpError())

    def caught(turn: Turn) -> None:
        with pytest.raises(GivenUpError):
            turn.rest(0.0, _always)
        ended.append("b")

    _begin(race, ended, "a", first, give_up)
    race.begin(caught)
    race.go_on()
    assert ended == ["a", "b"]
    assert not race.resting


def test_one_that_is_given_up_may_give_up_the_others(ended: list[str]) -> None:
    race = Race(3)

    def caught(name: str) -> Callable[[Turn], None]:
        def work(turn: Turn) -> None:
            with pytest.raises(GivenUpError):
                turn.rest(0.0, _never)
            ended.append(name)
            race.give_up(GivenUpError())

        return work

    for name in "abc":
        race.begin(caught(name))
    race.give_up(GivenUpError())
    assert sorted(ended) == ["a", "b", "c"]
    assert not race.resting


class _Due:
    def is_due(self, answered: int, rows: int) -> bool:
        return 0 < answered < rows

    def rest(self, standing: float, is_out: Callable[[], bool]) -> None:
        """Be back at once."""


def test_the_seconds_of_a_rest_are_known_of_a_candidate_that_ends_in_it() -> None:
    def look() -> None:
        raise OutOfReachError

    with ThreadPoolExecutor(1) as judges, Judging(judges, Countdown(), [ROW, ROW]) as judging:
        judging.judge(Completion(0, "", 1, Finish.STOP))
        rest = Rest(nullcontext, _always, judging, _Due())
        with pytest.raises(OutOfReachError):
            rest.take(_never, look)
    assert rest.seconds > rest.switching > 0
