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
from modnorm.search.stopping import EarlyStop, Threshold
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
    numbers: Sequence[int] = ()
    """Index of each row in its split; empty if these are all rows of it."""

    def answer_of(self, completion: Completion) -> Answer:
        """Return the answer that a completion is."""
        index = completion.index
        number = self.numbers[index] if self.numbers else index
        judgement = judge(
            self.task, self.rows[index], completion.text, f"{self.row_name} {number}"
        )
        return Answer(
            row=number,
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
        self._kept: Sequence[int] = range(self.total)
        self._uncollected: list[Future[Answer]] = []
        self.rewards: list[float] = []
        """Rewards of the answers judged before the last `collect_rewards`, in no order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Cancel all judgements that have not begun."""
        for answer in self._answers.values():
            answer.cancel()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether all completions are judged."""
        return not wait(self._answers.values(), timeout=timeout).not_done

    @property
    def count(self) -> int:
        """Number of completions that have arrived."""
        return len(self._answers)

    @property
    def total(self) -> int:
        """Number of rows."""
        return len(self._prompted.rows)

    @property
    def complete(self) -> bool:
        """Whether all completions have arrived."""
        return len(self._answers) == self.total

    def judge(self, completion: Completion) -> None:
        """Queue a completion for judging."""
        answer = self._judges.submit(self._prompted.answer_of, completion)
        self._answers[completion.index] = answer
        self._uncollected.append(answer)

    def collect_rewards(self) -> None:
        """Add the rewards of newly judged answers to `rewards`."""
        unjudged: list[Future[Answer]] = []
        for answer in self._uncollected:
            if answer.done():
                self.rewards.append(answer.result().reward)
            else:
                unjudged.append(answer)
        self._uncollected = unjudged

    def answers(self) -> tuple[Answer, ...]:
        """Wait for the answers to all rows, or those that are kept, and return them in row order.

        Errors of judging are raised here.
        """
        return tuple(self._answers[index].result() for index in self._kept)

    def keep_judged(self) -> None:
        """Keep only the answers that are judged already."""
        self._kept = [index for index in sorted(self._answers) if self._answers[index].done()]
        self.cancel()


class ExcludedError(Exception):
    """Raised when a candidate can no longer become an expert."""


class CandidatePoll:
    """Reports progress and stops an excluded candidate, between decode steps."""

    def __init__(
        self, answers: AnswerJudge, stop: EarlyStop | None, on_progress: Callable[[int], None]
    ) -> None:
        self._answers = answers
        self._stop = stop
        self._on_progress = on_progress
        self._last_state: tuple[int, Threshold | None] | None = None

    def __call__(self) -> None:
        """Run the checks."""
        self._on_progress(self._answers.count)
        if self._is_excluded():
            raise ExcludedError

    def _is_excluded(self) -> bool:
        answers, stop = self._answers, self._stop
        if stop is None or answers.complete:
            return False
        answers.collect_rewards()
        state = len(answers.rewards), stop.threshold()
        if state == self._last_state:
            return False
        self._last_state = state
        return stop.decide(answers.rewards, answers.total) is not None


def answer_candidate(  # noqa: PLR0913 - everything that a score depends on
    engine: Engine,
    prompted: PromptedRows,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    *,
    judges: Executor,
    on_progress: Callable[[int], None],
    stop: EarlyStop | None = None,
) -> "CandidateResult":
    """Generate a candidate's answers to all rows while threads judge them."""
    started = time.perf_counter()
    with ExitStack() as on_error:
        answers = on_error.enter_context(AnswerJudge(judges, prompted))
        poll = CandidatePoll(answers, stop, on_progress)
        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            complete = _generate(engine, prompted, answers, poll)
            generated = time.perf_counter()
        restored = time.perf_counter()
        if not complete:
            answers.keep_judged()
        on_error.pop_all()
    return CandidateResult(
        answers,
        resolved,
        switch_seconds=(ready - started) + (restored - generated),
        generate_seconds=generated - ready,
        stopped=not complete,
    )


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """A candidate's result, some of whose answers may not be judged yet."""

    judge: AnswerJudge
    """Has the answers to all rows, or those that a candidate gave before it was stopped early."""
    descriptor: Descriptor
    """Resolved: its coefficients rebuild the weights that gave the answers."""
    switch_seconds: float
    """Seconds of writing the candidate's weights and restoring the base."""
    generate_seconds: float
    stopped: bool
    """Whether the candidate was stopped early."""
    since: float = field(default_factory=time.perf_counter)
    """When the engine was done; further judging overlaps no generation."""


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
