"""The scoring of one candidate on one set of rows."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Self

from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import Answer
from modnorm.tasks.protocol import Row, Task
from modnorm.tasks.task_errors import judge


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
    row_name: str = "row"
    """Names a row in error messages, before its number."""

    def answer_of(self, completion: Completion) -> Answer:
        index = completion.index
        judgement = judge(self.task, self.rows[index], completion.text, f"{self.row_name} {index}")
        return Answer(
            row=index,
            completion=completion.text,
            reward=float(judgement.reward),  # a task may give any real number
            vote=judgement.vote,
            correct=bool(judgement.correct),
            tokens=completion.tokens,
            truncated=completion.finish is Finish.LENGTH,
        )


class AnswerJudge:
    """Judges a candidate's completions as they arrive; cancels the remaining ones on exit."""

    def __init__(self, judges: Executor, prompted: PromptedRows) -> None:
        self._judges = judges
        self._prompted = prompted
        self._answers: dict[int, Future[Answer]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for answer in self._answers.values():
            answer.cancel()

    def wait(self, timeout: float) -> int:
        """Wait at most `timeout` seconds; return how many completions are not judged yet."""
        return len(wait(self._answers.values(), timeout=timeout).not_done)

    @property
    def count(self) -> int:
        """Number of completions that have arrived."""
        return len(self._answers)

    def judge(self, completion: Completion) -> None:
        """Queue a completion for judging."""
        self._answers[completion.index] = self._judges.submit(self._prompted.answer_of, completion)

    def answers(self) -> tuple[Answer, ...]:
        """Wait for the answers to all rows, and return them in row order.

        Errors of judging are raised here.
        """
        return tuple(self._answers[index].result() for index in range(len(self._prompted.rows)))


def answer_candidate(  # noqa: PLR0913 - everything that a score depends on
    engine: Engine,
    prompted: PromptedRows,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    *,
    judges: Executor,
    on_progress: Callable[[int], None],
) -> "CandidateResult":
    """Generate a candidate's answers to all rows while threads judge them."""
    started = time.perf_counter()
    with ExitStack() as on_error:
        answers = on_error.enter_context(AnswerJudge(judges, prompted))

        def poll() -> None:
            on_progress(answers.count)

        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            generated = engine.generate(prompted.prompts, prompted.limits, poll=poll)
            with closing(generated) as completions:
                for completion in completions:
                    answers.judge(completion)
                    poll()
            done = time.perf_counter()
        restored = time.perf_counter()
        on_error.pop_all()
    return CandidateResult(
        answers,
        resolved,
        switch_seconds=(ready - started) + (restored - done),
        generate_seconds=done - ready,
    )


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's result, some of whose answers may not be judged yet."""

    judge: AnswerJudge
    """Has the answers to all rows."""
    descriptor: Descriptor
    """Resolved: its coefficients rebuild the weights that gave the answers."""
    switch_seconds: float
    """Seconds of writing the candidate's weights and restoring the base."""
    generate_seconds: float
    since: float = field(default_factory=time.perf_counter)
    """When the engine was done; further judging overlaps no generation."""
