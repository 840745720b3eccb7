from collections.abc import Callable, Sequence

import pytest

from modnorm.engines import Engine, GenerationLimits
from modnorm.errors import CancelledError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.search.ranking import mean_reward
from modnorm.search.scoring import CandidateResult
from modnorm.search.stopping import EarlyStop, Threshold, score_interval
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown

Score = Callable[..., CandidateResult]


def test_answers_are_in_row_order_and_judged_by_the_task(
    result: CandidateResult, rows: Sequence[Row], task: Countdown, limits: GenerationLimits
) -> None:
    assert [answer.row for answer in result.judge.answers()] == list(range(len(rows)))
    for answer, row in zip(result.judge.answers(), rows, strict=True):
        judgement = task.judge(row, answer.completion)
        assert (answer.reward, answer.vote, answer.correct) == (
            judgement.reward,
            judgement.vote,
            judgement.correct,
        )
        cut = answer.tokens == limits.max_tokens and "</answer>" not in answer.completion
        assert answer.truncated == cut
    assert any(answer.vote is not None for answer in result.judge.answers())
    assert any(answer.truncated for answer in result.judge.answers())


def test_descriptor_comes_back_resolved(result: CandidateResult, scale_map: ScaleMap) -> None:
    assert result.descriptor.coefficients is not None
    assert len(result.descriptor.coefficients) == len(scale_map.active)


def test_progress_counts_up_to_all_rows(score: Score, rows: Sequence[Row]) -> None:
    seen: list[int] = []
    score(on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == len(rows)
    assert len(seen) > len(rows)


@pytest.mark.parametrize("calls", [1, 3, 40])
def test_cancelling_restores_the_base_at_once(engine: Engine, score: Score, calls: int) -> None:
    before = engine.weights_sha256()
    made = 0

    def cancel(_: int) -> None:
        nonlocal made
        made += 1
        if made == calls:
            raise CancelledError("not wanted")

    with pytest.raises(CancelledError):
        score(on_progress=cancel)
    assert made == calls
    assert engine.weights_sha256() == before


@pytest.mark.parametrize("late", [False, True])
def test_an_excluded_candidate_is_not_scored_completely(
    engine: Engine,
    score: Score,
    task: Countdown,
    rows: Sequence[Row],
    result: CandidateResult,
    all_are_judged: Callable[[], object],
    *,
    late: bool,
) -> None:
    # Excluded with the first wrong answer, or before any answer: 3 ranks before 7.
    largest = task.reward_bounds.largest
    threshold = Threshold(largest - 0.5 / len(rows) if late else largest, 3)
    before = engine.weights_sha256()
    seen: list[int] = []

    def poll(answered: int) -> None:
        seen.append(answered)
        all_are_judged()

    stopped = score(on_progress=poll, stop=EarlyStop(7, task.reward_bounds, lambda: threshold))
    assert stopped.stopped
    given = [answer.reward for answer in stopped.judge.answers()]
    whole = mean_reward([answer.reward for answer in result.judge.answers()])
    interval = score_interval(given, len(rows), task.reward_bounds)
    assert interval.lower <= whole <= interval.upper
    assert threshold.excludes(interval.upper, 7)
    assert set(stopped.judge.answers()) < set(result.judge.answers())
    assert bool(stopped.judge.answers()) is late
    assert stopped.descriptor == result.descriptor
    assert seen[-1] < len(rows)
    assert engine.weights_sha256() == before


@pytest.mark.parametrize("raised", [False, True])
def test_a_candidate_that_can_still_be_an_expert_is_scored_completely(
    score: Score, task: Countdown, result: CandidateResult, *, raised: bool
) -> None:
    threshold = (
        Threshold(mean_reward([answer.reward for answer in result.judge.answers()]), 8)
        if raised
        else None
    )
    scored = score(stop=EarlyStop(7, task.reward_bounds, lambda: threshold))
    assert not scored.stopped
    assert scored.judge.answers() == result.judge.answers()
