from collections.abc import Callable

import pytest

from modnorm.search.racing import Race, Turn


class GivenUpError(Exception):
    """What a race is given up with."""


def _never() -> bool:
    return False


def test_one_that_is_given_up_may_give_up_the_others() -> None:
    race = Race(3)
    ended: list[str] = []

    def rests(name: str) -> Callable[[Turn], None]:
        def work(turn: Turn) -> None:
            with pytest.raises(GivenUpError):
                turn.rest(0.0, _never)
            race.give_up(GivenUpError())
            ended.append(name)

        return work

    for name in "abc":
        race.begin(rests(name))
    race.give_up(GivenUpError())
    assert sorted(ended) == ["a", "b", "c"]
    assert not race.resting
