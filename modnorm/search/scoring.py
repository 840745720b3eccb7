"""The scoring of one candidate on one set of rows."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from modnorm.engines.protocol import Engine, GenerationLimits
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answer import Answer
from modnorm.search.judging import AnswerJudge
from modnorm.search.polling import CandidateParking, CandidatePoll, ExcludedError, ParkingPolicy
from modnorm.search.stopping import EarlyStop, Interval, score_interval
from modnorm.tasks.protocol import Row, Task


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's answers, in row order."""

    descriptor: Descriptor
    """Resolved: its coefficients rebuild the weights that gave the answers."""
    answers: tuple[Answer, ...]
    """Answers to all rows, or those that a candidate gave before it was stopped early."""
    switch_seconds: float
    """Seconds of writing the candidate's weights and restoring the base."""
    generate_seconds: float
    score_seconds: float
    """Seconds of judging after the last answer; other judging overlaps generation."""
    stopped: Interval | None = None
    """Bounds of the score of a candidate that was stopped early; None if it is complete."""


@dataclass(frozen=True, slots=True)
class PromptedRows:
    """Rows of a task, ready to be answered."""

    task: Task
    """Judges the completions."""
    rows: Sequence[Row]
    prompts: Sequence[Sequence[int]]
    """Token ids of each row's prompt."""
    limits: GenerationLimits
    """Bounds of each completion."""
    label: Callable[[int], str] = "row {}".format
    """Returns the name of a row in error messages, by its index."""


def answer_candidate(  # noqa: PLR0913 - everything that a score depends on
    engine: Engine,
    prompted: PromptedRows,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    *,
    judges: Executor,
    on_progress: Callable[[int], None],
    stop: EarlyStop | None = None,
    parking: ParkingPolicy | None = None,
) -> "PendingResult":
    """Generate a candidate's answers to all rows while threads judge them.

    Returns before the last answers are judged: the engine is then free for another candidate.

    Args:
        engine: Holds the base before and after, even if this raises.
        prompted: The rows to answer.
        descriptor: The candidate.
        scale_map: The scale map that it was drawn with.
        judges: Threads that judge answers during generation.
        on_progress: Called between decode steps with the number of finished answers. An error that
            it raises, for example `CancelledError`, aborts the work.
        stop: When to stop an excluded candidate; None to score all candidates completely.
        parking: When to park the candidate for others; None to never park it.

    Raises:
        CandidateError: the candidate cannot be evaluated.
        IncompatibleError: the scale map is of another model, or the code of the task raises.
        EngineError: the infrastructure failed.
    """
    started = time.perf_counter()
    with ExitStack() as on_error:
        answers = on_error.enter_context(
            AnswerJudge(judges, prompted.task, prompted.rows, prompted.label)
        )
        has_room = partial(engine.has_room, prompted.prompts, prompted.limits)
        parked = CandidateParking(engine.parked, has_room, answers, parking)
        poll = CandidatePoll(answers, stop, on_progress, parked)
        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            complete = _generate(engine, prompted, answers, poll)
            generated = time.perf_counter()
        restored = time.perf_counter()
        partial_answers = None if complete else answers.judged_answers()
        on_error.pop_all()
    return PendingResult(
        answers,
        CandidateResult(
            descriptor=resolved,
            answers=partial_answers or (),
            switch_seconds=(ready - started) + (restored - generated) + parked.switching,
            generate_seconds=generated - ready - parked.seconds,
            score_seconds=0.0,
            stopped=_interval(partial_answers, len(prompted.rows), stop),
        ),
        complete=complete,
    )


class PendingResult:
    """A candidate's result, some of whose answers may not be judged yet.

    Leaving the context cancels judgements that have not begun.

    Args:
        answers: The candidate's answers.
        result: The result without them, or with the answers of a stopped candidate.
        complete: Whether the candidate answered all rows.
    """

    def __init__(self, answers: AnswerJudge, result: CandidateResult, *, complete: bool) -> None:
        self._answers = answers
        self._result = result
        self._complete = complete
        self._since = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.cancel()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether the result is ready."""
        return not self._complete or self._answers.wait(timeout)

    def result(self) -> CandidateResult:
        """Wait for the last judgement and return the result; errors of judging are raised here.

        Its `score_seconds` count from the last answer until now.
        """
        answers = self._answers.answers() if self._complete else self._result.answers
        waited = time.perf_counter() - self._since
        return replace(self._result, answers=answers, score_seconds=waited)

    def judged(self) -> CandidateResult:
        """Return `result()` and leave the context."""
        with self:
            return self.result()


def _interval(
    answers: Sequence[Answer] | None, rows: int, stop: EarlyStop | None
) -> Interval | None:
    if answers is None or stop is None:
        return None
    return score_interval([answer.reward for answer in answers], rows, stop.bounds)


def _generate(
    engine: Engine, prompted: PromptedRows, answers: AnswerJudge, poll: CandidatePoll
) -> bool:
    """Generate the completions and queue them for judging; return False if stopped early."""
    try:
        generated = engine.generate(prompted.prompts, prompted.limits, poll=poll)
        with closing(generated) as completions:
            for completion in completions:
                answers.judge(completion)
                poll()
    except ExcludedError:
        return False
    return True
