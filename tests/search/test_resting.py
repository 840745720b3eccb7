"""A candidate that makes way for others, and what it says when it goes on."""

import time
from collections.abc import Callable, Sequence

import pytest

from modnorm.engines import Engine
from modnorm.errors import CancelledError
from modnorm.search.racing import SHARE, Race
from modnorm.search.scoring import CandidateResult
from modnorm.search.stopping import Bar, EarlyStop
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown

AGES = 1e6
"""Seconds; nothing takes as long."""
Score = Callable[..., CandidateResult]


@pytest.fixture
def bars() -> list[Bar | None]:
    """The bars that were set: the last holds."""
    return [None]


@pytest.fixture
def stop(task: Countdown, bars: list[Bar | None]) -> EarlyStop:
    return EarlyStop(7, task.reward_bounds, lambda: bars[-1])


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets so many seconds pass on the clock."""
    passed: list[float] = []
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(passed))
    return passed.append


def test_a_candidate_that_rested_scores_as_one_that_ran_through(
    engine: Engine,
    score: Score,
    stop: EarlyStop,
    rows: Sequence[Row],
    result: CandidateResult,
    let_pass: Callable[[float], None],
) -> None:
    before = engine.weights_sha256()
    found: list[CandidateResult] = []
    seen: list[int] = []
    race = Race(1)
    race.begin(lambda turn: found.append(score(resting=turn, stop=stop, on_progress=seen.append)))
    assert race.resting == 1
    assert SHARE * len(rows) <= seen[-1] < len(rows)
    assert engine.weights_sha256() == before
    # The one place is taken: this one runs through.
    race.begin(lambda turn: found.append(score(resting=turn, stop=stop)))
    let_pass(AGES)
    race.go_on()
    assert race.resting == 0
    assert engine.weights_sha256() == before
    for each in found:
        assert each.answers == result.answers
        assert each.descriptor == result.descriptor
        assert each.stopped is None
        assert 0 < each.generate_seconds < AGES / 2
        assert 0 < each.switch_seconds < AGES / 2


def test_a_candidate_that_is_out_by_its_turn_does_not_go_on(
    engine: Engine,
    score: Score,
    stop: EarlyStop,
    bars: list[Bar | None],
    task: Countdown,
    result: CandidateResult,
    all_are_judged: Callable[[], object],
    let_pass: Callable[[float], None],
) -> None:
    before = engine.weights_sha256()
    seen: list[int] = []
    found: list[CandidateResult] = []
    race = Race(1)
    race.begin(lambda turn: found.append(score(resting=turn, stop=stop, on_progress=seen.append)))
    answered = seen[-1]
    all_are_judged()
    let_pass(AGES)
    bars.append(Bar(task.reward_bounds.largest, 3))
    race.go_on()
    assert found[0].stopped is not None
    assert set(found[0].answers) < set(result.answers)
    assert len(found[0].answers) == answered == seen[-1]
    assert found[0].descriptor == result.descriptor
    assert 0 < found[0].generate_seconds < AGES / 2
    assert 0 < found[0].switch_seconds < AGES / 2
    assert engine.weights_sha256() == before


def test_what_progress_raises_after_a_rest_ends_the_candidate(
    engine: Engine, score: Score, stop: EarlyStop
) -> None:
    before = engine.weights_sha256()
    wanted, done = [True], list[CandidateResult]()

    def look(_: int) -> None:
        if not wanted[-1]:
            raise CancelledError("not wanted")

    race = Race(1)
    race.begin(lambda turn: done.append(score(resting=turn, stop=stop, on_progress=look)))
    wanted.append(False)
    with pytest.raises(CancelledError):
        race.go_on()
    assert race.resting == 0
    assert not done
    assert engine.weights_sha256() == before


def test_a_candidate_runs_through_where_no_other_fits_beside_it(
    engine: Engine, score: Score, stop: EarlyStop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_room", lambda *_: False)
    found: list[CandidateResult] = []
    race = Race(1)
    race.begin(lambda turn: found.append(score(resting=turn, stop=stop)))
    assert race.resting == 0
    assert len(found) == 1
