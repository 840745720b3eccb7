from collections.abc import Callable, Sequence

import pytest

from modnorm.engines import Engine, GenerationLimits
from modnorm.errors import CancelledError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.search.scoring import CandidateResult
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
