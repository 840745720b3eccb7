"""One candidate on one set of rows: answers, rewards and votes."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.tasks.protocol import Row, Task


@dataclass(frozen=True, slots=True)
class Answer:
    """What the candidate says to one row, judged."""

    row: int
    """Index of the row."""
    completion: str
    reward: float
    """Selection reward."""
    vote: str | None
    """Vote key; None when there is no valid answer."""
    correct: bool
    """Whether the vote, taken alone, is right."""
    tokens: int
    """Generated tokens, the stop token included."""
    truncated: bool
    """Whether the completion cap ended it."""


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's answers to all rows, in row order."""

    descriptor: Descriptor
    """Resolved: it rebuilds the very weights that answered."""
    answers: tuple[Answer, ...]
    switch_seconds: float
    """Making the candidate and restoring the base."""
    generate_seconds: float
    score_seconds: float
    """Judging after the last answer; the rest of it ran beside the generation."""


def score_candidate(  # noqa: PLR0913, PLR0917 - one call, all of what a score depends on
    engine: Engine,
    task: Task,
    rows: Sequence[Row],
    prompts: Sequence[Sequence[int]],
    descriptor: Descriptor,
    scale_map: ScaleMap,
    limits: GenerationLimits,
    *,
    judges: Executor,
    on_progress: Callable[[int], None],
) -> CandidateResult:
    """Turn the engine into a candidate, let it answer all rows, judge the answers.

    Args:
        engine: Holds the base; holds it again afterwards, whatever happens.
        task: Judges the completions.
        rows: Rows to answer.
        prompts: Token ids of each row's prompt.
        descriptor: The candidate.
        scale_map: The scale map that it was drawn with.
        limits: Bounds of each completion.
        judges: Threads that judge answers while the others are still being generated.
        on_progress: Called between decode steps with the number of finished answers; what it
            raises (`CancelledError`, say) aborts the work.

    Raises:
        CandidateError: the candidate cannot be evaluated.
        IncompatibleError: the scale map is of another model.
        EngineError: the infrastructure failed.
    """
    started = time.perf_counter()
    with _Judging(judges, task, rows) as judging:
        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            _complete(engine, prompts, limits, judging, on_progress)
            generated = time.perf_counter()
        restored = time.perf_counter()
        answers = judging.answers()
    return CandidateResult(
        descriptor=resolved,
        answers=answers,
        switch_seconds=(ready - started) + (restored - generated),
        generate_seconds=generated - ready,
        score_seconds=time.perf_counter() - restored,
    )


class _Judging:
    """Judges completions as they come; what is left is dropped on leaving the context."""

    def __init__(self, judges: Executor, task: Task, rows: Sequence[Row]) -> None:
        self._judges = judges
        self._task = task
        self._rows = rows
        self._judged: dict[int, Future[Answer]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for judged in self._judged.values():
            judged.cancel()

    @property
    def count(self) -> int:
        """Completions that came."""
        return len(self._judged)

    def judge(self, completion: Completion) -> None:
        row = self._rows[completion.index]
        self._judged[completion.index] = self._judges.submit(_judge, self._task, row, completion)

    def answers(self) -> tuple[Answer, ...]:
        """Wait for all answers, in row order."""
        return tuple(self._judged[index].result() for index in range(len(self._rows)))


def _complete(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    limits: GenerationLimits,
    judging: _Judging,
    on_progress: Callable[[int], None],
) -> None:
    """Have all prompts completed, and every completion judged."""
    generation = engine.generate(prompts, limits, poll=lambda: on_progress(judging.count))
    with closing(generation) as completions:
        for completion in completions:
            judging.judge(completion)
            on_progress(judging.count)


def _judge(task: Task, row: Row, completion: Completion) -> Answer:
    judgement = task.judge(row, completion.text)
    return Answer(
        row=completion.index,
        completion=completion.text,
        reward=judgement.reward,
        vote=judgement.vote,
        correct=judgement.correct,
        tokens=completion.tokens,
        truncated=completion.finish is Finish.LENGTH,
    )
