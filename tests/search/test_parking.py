"""A candidate that is parked and resumed gives the answers of an undisturbed one."""

import time
from collections.abc import Callable, Sequence

import pytest

from modnorm.engines import Engine
from modnorm.errors import CancelledError
from modnorm.search.scheduling import SHARE, Scheduler
from modnorm.search.scoring import CandidateResult
from modnorm.search.stopping import EarlyStop, Threshold
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown

AGES = 1e6
"""Seconds; longer than any test."""
Score = Callable[..., CandidateResult]


@pytest.fixture
def thresholds() -> list[Threshold | None]:
    """Return the thresholds so far; the last one is current."""
    return [None]


@pytest.fixture
def stop(task: Countdown, thresholds: list[Threshold | None]) -> EarlyStop:
    return EarlyStop(7, task.reward_bounds, lambda: thresholds[-1])


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that advances the clock by some seconds."""
    passed: list[float] = []
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(passed))
    return passed.append


def test_a_parked_candidate_scores_as_an_undisturbed_one(
    engine: Engine,
    score: Score,
    stop: EarlyStop,
    rows: Sequence[Row],
    result: CandidateResult,
    let_pass: Callable[[float], None],
) -> None:
    before = engine.weights_sha256()
    results: list[CandidateResult] = []
    seen: list[int] = []
    scheduler = Scheduler(1)
    scheduler.begin(
        lambda turn: results.append(score(parking=turn, stop=stop, on_progress=seen.append))
    )
    assert scheduler.parked == 1
    assert SHARE * len(rows) <= seen[-1] < len(rows)
    assert engine.weights_sha256() == before
    # The only place is taken, so this candidate is not parked.
    scheduler.begin(lambda turn: results.append(score(parking=turn, stop=stop)))
    let_pass(AGES)
    scheduler.resume_best()
    assert scheduler.parked == 0
    assert engine.weights_sha256() == before
    for each in results:
        assert each.answers == result.answers
        assert each.descriptor == result.descriptor
        assert each.stopped is None
        assert 0 < each.generate_seconds < AGES / 2
        assert 0 < each.switch_seconds < AGES / 2


def test_a_candidate_that_was_excluded_while_parked_stops(
    engine: Engine,
    score: Score,
    stop: EarlyStop,
    thresholds: list[Threshold | None],
    task: Countdown,
    result: CandidateResult,
    all_are_judged: Callable[[], object],
    let_pass: Callable[[float], None],
) -> None:
    before = engine.weights_sha256()
    seen: list[int] = []
    results: list[CandidateResult] = []
    scheduler = Scheduler(1)
    scheduler.begin(
        lambda turn: results.append(score(parking=turn, stop=stop, on_progress=seen.append))
    )
    answered = seen[-1]
    all_are_judged()
    let_pass(AGES)
    thresholds.append(Threshold(task.reward_bounds.largest, 3))
    scheduler.resume_best()
    assert results[0].stopped is not None
    assert set(results[0].answers) < set(result.answers)
    assert len(results[0].answers) == answered == seen[-1]
    assert results[0].descriptor == result.descriptor
    assert 0 < results[0].generate_seconds < AGES / 2
    assert 0 < results[0].switch_seconds < AGES / 2
    assert engine.weights_sha256() == before


def test_an_error_of_on_progress_after_parking_ends_the_candidate(
    engine: Engine, score: Score, stop: EarlyStop
) -> None:
    before = engine.weights_sha256()
    wanted, done = [True], list[CandidateResult]()

    def poll(_: int) -> None:
        if not wanted[-1]:
            raise CancelledError("not wanted")

    scheduler = Scheduler(1)
    scheduler.begin(lambda turn: done.append(score(parking=turn, stop=stop, on_progress=poll)))
    wanted.append(False)
    with pytest.raises(CancelledError):
        scheduler.resume_best()
    assert scheduler.parked == 0
    assert not done
    assert engine.weights_sha256() == before


def test_a_candidate_is_not_parked_if_the_engine_has_no_room(
    engine: Engine, score: Score, stop: EarlyStop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_room", lambda *_: False)
    results: list[CandidateResult] = []
    scheduler = Scheduler(1)
    scheduler.begin(lambda turn: results.append(score(parking=turn, stop=stop)))
    assert scheduler.parked == 0
    assert len(results) == 1
