import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, GenerationLimits, load_engine
from modnorm.errors import CancelledError, IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.search.racing import SHARE, Race, Turn
from modnorm.search.ranking import mean_reward
from modnorm.search.scoring import CandidateResult, answer_candidate
from modnorm.search.stopping import Bar, EarlyStop
from modnorm.spec import DataSpec, Masses
from modnorm.tasks import Row
from modnorm.tasks.countdown import Countdown
from modnorm.tasks.data import load_rows

TASK = Countdown()
LIMITS = GenerationLimits(max_tokens=192)
JUDGES = ThreadPoolExecutor(2)
AGES = 1e6
"""Seconds; nothing takes as long."""


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


@pytest.fixture(scope="module")
def engine(checkpoint: Checkpoint) -> Iterator[Engine]:
    engine = load_engine("auto", checkpoint)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def scale_map(checkpoint: Checkpoint) -> ScaleMap:
    return build_scale_map(
        "randopt",
        config=checkpoint.config,
        model_digest=checkpoint.digest,
        masses=Masses(),
        weights=None,
        sensitivities=None,
    )


@pytest.fixture(scope="module")
def rows() -> Sequence[Row]:
    spec = DataSpec(source="bundled:countdown-selection", limit=12)
    return load_rows(TASK, spec, field="task.selection")


@pytest.fixture(scope="module")
def prompts(checkpoint: Checkpoint, rows: Sequence[Row]) -> Sequence[Sequence[int]]:
    encoder = PromptEncoder(checkpoint)
    return [encoder.encode(TASK.messages(row)) for row in rows]


@pytest.fixture(scope="module")
def descriptor(scale_map: ScaleMap) -> Descriptor:
    return Descriptor("portable-v1", 11, "randopt", 0.005, scale_map.digest)


@pytest.fixture(scope="module")
def result(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
) -> CandidateResult:
    return answer_candidate(
        engine,
        TASK,
        rows,
        prompts,
        descriptor,
        scale_map,
        LIMITS,
        judges=JUDGES,
        on_progress=lambda _: None,
    ).judged()


def test_answers_are_in_row_order_and_judged_by_the_task(
    result: CandidateResult, rows: Sequence[Row]
) -> None:
    assert [answer.row for answer in result.answers] == list(range(len(rows)))
    for answer, row in zip(result.answers, rows, strict=True):
        judgement = TASK.judge(row, answer.completion)
        assert (answer.reward, answer.vote, answer.correct) == (
            judgement.reward,
            judgement.vote,
            judgement.correct,
        )
        assert answer.truncated == (answer.tokens == 192 and "</answer>" not in answer.completion)
    assert any(answer.vote is not None for answer in result.answers)


def test_descriptor_comes_back_resolved(result: CandidateResult, scale_map: ScaleMap) -> None:
    assert result.descriptor.coefficients is not None
    assert len(result.descriptor.coefficients) == len(scale_map.active)


def test_phases_are_timed(result: CandidateResult) -> None:
    assert result.generate_seconds > 0
    assert result.switch_seconds > 0
    assert result.score_seconds > 0


def test_resolved_descriptor_scores_the_same(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    scale_map: ScaleMap,
    result: CandidateResult,
) -> None:
    again = answer_candidate(
        engine,
        TASK,
        rows,
        prompts,
        result.descriptor,
        scale_map,
        LIMITS,
        judges=JUDGES,
        on_progress=_ignore,
    ).judged()
    assert again.answers == result.answers
    assert again.descriptor == result.descriptor


def test_progress_counts_up_to_all_rows(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
) -> None:
    seen: list[int] = []
    answer_candidate(
        engine,
        TASK,
        rows,
        prompts,
        descriptor,
        scale_map,
        LIMITS,
        judges=JUDGES,
        on_progress=seen.append,
    ).judged()
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == len(rows)
    assert len(seen) > len(rows)


@pytest.mark.parametrize("calls", [1, 3, 40])
def test_cancelling_restores_the_base_at_once(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
    calls: int,
) -> None:
    before = engine.weights_sha256()
    made = 0

    def cancel(_: int) -> None:
        nonlocal made
        made += 1
        if made == calls:
            raise CancelledError("not wanted")

    with pytest.raises(CancelledError):
        answer_candidate(
            engine,
            TASK,
            rows,
            prompts,
            descriptor,
            scale_map,
            LIMITS,
            judges=JUDGES,
            on_progress=cancel,
        ).judged()
    assert made == calls
    assert engine.weights_sha256() == before


def test_scale_map_of_another_candidate_is_refused(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    checkpoint: Checkpoint,
    descriptor: Descriptor,
) -> None:
    other = build_scale_map(
        "base",
        config=checkpoint.config,
        model_digest=checkpoint.digest,
        masses=Masses(),
        weights=None,
        sensitivities=None,
    )
    with pytest.raises(IncompatibleError):
        answer_candidate(
            engine,
            TASK,
            rows,
            prompts,
            descriptor,
            other,
            LIMITS,
            judges=JUDGES,
            on_progress=_ignore,
        ).judged()


def stop_at(bar: Bar | None) -> EarlyStop:
    return EarlyStop(7, TASK.reward_bounds, lambda: bar)


@pytest.mark.parametrize("late", [False, True])
def test_a_candidate_that_is_out_is_not_scored_to_its_end(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
    result: CandidateResult,
    *,
    late: bool,
) -> None:
    score = mean_reward([answer.reward for answer in result.answers])
    # Out with the first answer that is wrong, or before it says anything: 3 ranks before 7.
    largest = TASK.reward_bounds.largest
    bar = Bar(largest - 0.5 / len(rows) if late else largest, 3)
    before = engine.weights_sha256()
    seen: list[int] = []
    stopped = answer_candidate(
        engine,
        TASK,
        rows,
        prompts,
        descriptor,
        scale_map,
        LIMITS,
        judges=JUDGES,
        on_progress=seen.append,
        stop=stop_at(bar),
    ).judged()
    assert stopped.stopped is not None
    assert stopped.stopped.lower <= score <= stopped.stopped.upper
    assert bar.shuts_out(stopped.stopped.upper, 7)
    assert set(stopped.answers) < set(result.answers)
    assert bool(stopped.answers) is late
    assert stopped.descriptor == result.descriptor
    assert seen[-1] < len(rows)
    assert engine.weights_sha256() == before


@pytest.mark.parametrize("raised", [False, True])
def test_a_candidate_that_can_still_be_an_expert_is_scored_to_its_end(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
    result: CandidateResult,
    *,
    raised: bool,
) -> None:
    score = mean_reward([answer.reward for answer in result.answers])
    scored = answer_candidate(
        engine,
        TASK,
        rows,
        prompts,
        descriptor,
        scale_map,
        LIMITS,
        judges=JUDGES,
        on_progress=_ignore,
        stop=stop_at(Bar(score, 8) if raised else None),
    ).judged()
    assert scored.stopped is None
    assert scored.answers == result.answers


Answer = Callable[..., CandidateResult]


@pytest.fixture
def answer(
    engine: Engine,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
) -> Answer:
    """Return the scoring of a candidate, to be told when to rest and when to stop."""

    def answer(
        turn: Turn,
        stop: EarlyStop | None = None,
        on_progress: Callable[[int], None] = _ignore,
    ) -> CandidateResult:
        return answer_candidate(
            engine,
            TASK,
            rows,
            prompts,
            descriptor,
            scale_map,
            LIMITS,
            judges=JUDGES,
            on_progress=on_progress,
            stop=stop,
            resting=turn,
        ).judged()

    return answer


@pytest.fixture
def let_pass(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return what lets so many seconds pass on the clock."""
    passed: list[float] = []
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + sum(passed))
    return passed.append


def test_a_candidate_that_rested_scores_as_one_that_ran_through(
    engine: Engine,
    answer: Answer,
    rows: Sequence[Row],
    result: CandidateResult,
    let_pass: Callable[[float], None],
) -> None:
    before = engine.weights_sha256()
    found: list[CandidateResult] = []
    seen: list[int] = []
    race = Race(1)
    race.begin(lambda turn: found.append(answer(turn, stop_at(None), on_progress=seen.append)))
    assert race.resting == 1
    assert SHARE * len(rows) <= seen[-1] < len(rows)
    assert engine.weights_sha256() == before
    # The one place is taken: this one runs through.
    race.begin(lambda turn: found.append(answer(turn, stop_at(None))))
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
    engine: Engine, answer: Answer, result: CandidateResult, let_pass: Callable[[float], None]
) -> None:
    before = engine.weights_sha256()
    bars: list[Bar | None] = [None]
    seen: list[int] = []
    found: list[CandidateResult] = []
    race = Race(1)
    stop = EarlyStop(7, TASK.reward_bounds, lambda: bars[-1])
    race.begin(lambda turn: found.append(answer(turn, stop, on_progress=seen.append)))
    answered = seen[-1]
    let_pass(AGES)
    bars.append(Bar(TASK.reward_bounds.largest, 3))
    race.go_on()
    assert found[0].stopped is not None
    assert set(found[0].answers) < set(result.answers)
    assert len(found[0].answers) == answered == seen[-1]
    assert found[0].descriptor == result.descriptor
    assert 0 < found[0].generate_seconds < AGES / 2
    assert 0 < found[0].switch_seconds < AGES / 2
    assert engine.weights_sha256() == before


def test_what_progress_raises_after_a_rest_ends_the_candidate(
    engine: Engine, answer: Answer
) -> None:
    before = engine.weights_sha256()
    wanted, done = [True], list[CandidateResult]()

    def look(_: int) -> None:
        if not wanted[-1]:
            raise CancelledError("not wanted")

    race = Race(1)
    race.begin(lambda turn: done.append(answer(turn, stop_at(None), on_progress=look)))
    wanted.append(False)
    with pytest.raises(CancelledError):
        race.go_on()
    assert race.resting == 0
    assert not done
    assert engine.weights_sha256() == before


def test_a_candidate_runs_through_where_no_other_fits_beside_it(
    engine: Engine, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "has_room", lambda *_: False)
    found: list[CandidateResult] = []
    race = Race(1)
    race.begin(lambda turn: found.append(answer(turn, stop_at(None))))
    assert race.resting == 0
    assert len(found) == 1


def _ignore(_: int) -> None:
    """Take no notice of progress."""
