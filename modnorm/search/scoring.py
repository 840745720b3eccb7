"""One candidate on one set of rows: answers, rewards and votes."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Self

from modnorm.engines.protocol import Completion, Engine, Finish, GenerationLimits
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.stopping import Bar, EarlyStop, Interval, score_interval
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
    """A candidate's answers, in row order."""

    descriptor: Descriptor
    """Resolved: it rebuilds the very weights that answered."""
    answers: tuple[Answer, ...]
    """To all rows; of a candidate that was stopped early, those that it gave until then."""
    switch_seconds: float
    """Making the candidate and restoring the base."""
    generate_seconds: float
    score_seconds: float
    """Judging after the last answer; the rest of it ran beside the generation."""
    stopped: Interval | None = None
    """What the score of a candidate that was stopped early can be; None where it is complete."""


def answer_candidate(  # noqa: PLR0913, PLR0917 - one call, all of what a score depends on
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
    stop: EarlyStop | None = None,
) -> "Answered":
    """Turn the engine into a candidate and let it answer all rows; judges work beside it.

    Returns before the last answers are judged: the engine is free for another candidate.

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
        stop: Looked at between decode steps too: a candidate that is out is not scored to its
            end. None scores it to its end whatever it says.

    Raises:
        CandidateError: the candidate cannot be evaluated.
        IncompatibleError: the scale map is of another model.
        EngineError: the infrastructure failed.
    """
    started = time.perf_counter()
    with ExitStack() as undone:
        judging = undone.enter_context(_Judging(judges, task, rows))
        watch = _Watch(judging, stop, on_progress)
        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            whole = _complete(engine, prompts, limits, judging, watch)
            generated = time.perf_counter()
        restored = time.perf_counter()
        partial = None if whole else judging.finished()
        undone.pop_all()
    stopped = None if partial is None or stop is None else _interval(partial, len(rows), stop)
    return Answered(
        judging,
        CandidateResult(
            descriptor=resolved,
            answers=partial or (),
            switch_seconds=(ready - started) + (restored - generated),
            generate_seconds=generated - ready,
            score_seconds=0.0,
            stopped=stopped,
        ),
        whole=whole,
    )


class Answered:
    """A candidate that has given its answers, some of which may not be judged yet.

    A context, which drops on leaving what is not judged by then.

    Args:
        judging: Its answers.
        result: What is known besides.
        whole: Whether all of them count; only those in `result` otherwise.
    """

    def __init__(self, judging: "_Judging", result: CandidateResult, *, whole: bool) -> None:
        self._judging = judging
        self._result = result
        self._whole = whole
        self._since = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._judging.drop()

    def is_judged(self, within: float) -> bool:
        """Wait for so many seconds at most; return whether `result` waits for nothing more."""
        return not self._whole or self._judging.is_over(within)

    def result(self) -> CandidateResult:
        """Wait for the last judgement; whatever it raises is raised here.

        Returns:
            The result; its `score_seconds` reach from the last answer until now.
        """
        answers = self._judging.answers() if self._whole else self._result.answers
        waited = time.perf_counter() - self._since
        return replace(self._result, answers=answers, score_seconds=waited)

    def judged(self) -> CandidateResult:
        """Return the result, and leave the context."""
        with self:
            return self.result()


def _interval(answers: Sequence[Answer], rows: int, stop: EarlyStop) -> Interval:
    return score_interval([answer.reward for answer in answers], rows, stop.bounds)


class _Judging:
    """Judges completions as they come; what is left is dropped on leaving the context."""

    def __init__(self, judges: Executor, task: Task, rows: Sequence[Row]) -> None:
        self._judges = judges
        self._task = task
        self._rows = rows
        self._judged: dict[int, Future[Answer]] = {}
        self._unread: list[Future[Answer]] = []
        self.rewards: list[float] = []
        """Of the answers that were judged when it was looked at last, in no order."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        """Judge no more of them."""
        for judged in self._judged.values():
            judged.cancel()

    def is_over(self, within: float) -> bool:
        """Wait for so many seconds at most; return whether all completions are judged."""
        return not wait(self._judged.values(), timeout=within).not_done

    @property
    def count(self) -> int:
        """Completions that came."""
        return len(self._judged)

    @property
    def total(self) -> int:
        """Completions that there will be."""
        return len(self._rows)

    @property
    def complete(self) -> bool:
        """Whether all completions came."""
        return len(self._judged) == len(self._rows)

    def judge(self, completion: Completion) -> None:
        row = self._rows[completion.index]
        judged = self._judges.submit(_judge, self._task, row, completion)
        self._judged[completion.index] = judged
        self._unread.append(judged)

    def look(self) -> None:
        """Take in the rewards that have become known."""
        unread: list[Future[Answer]] = []
        for judged in self._unread:
            if judged.done():
                self.rewards.append(judged.result().reward)
            else:
                unread.append(judged)
        self._unread = unread

    def answers(self) -> tuple[Answer, ...]:
        """Wait for all answers, in row order."""
        return tuple(self._judged[index].result() for index in range(len(self._rows)))

    def finished(self) -> tuple[Answer, ...]:
        """Return the answers that are judged by now, in row order."""
        judged = (self._judged[index] for index in sorted(self._judged))
        return tuple(each.result() for each in judged if each.done())


class _OutOfReachError(Exception):
    """The candidate is out."""


class _Watch:
    """Looks, between decode steps, at whether the work goes on."""

    def __init__(
        self, judging: _Judging, stop: EarlyStop | None, on_progress: Callable[[int], None]
    ) -> None:
        self._judging = judging
        self._stop = stop
        self._on_progress = on_progress
        self._seen: tuple[int, Bar | None] | None = None

    def __call__(self) -> None:
        """Raise when the candidate is out, or what `on_progress` raises."""
        judging, stop = self._judging, self._stop
        self._on_progress(judging.count)
        if stop is None or judging.complete:
            return
        judging.look()
        seen = len(judging.rewards), stop.bar()
        if seen != self._seen and stop.decide(judging.rewards, judging.total):
            raise _OutOfReachError
        self._seen = seen


def _complete(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    limits: GenerationLimits,
    judging: _Judging,
    watch: _Watch,
) -> bool:
    """Have the prompts completed, and every completion judged; return whether all of them are."""
    try:
        with closing(engine.generate(prompts, limits, poll=watch)) as completions:
            for completion in completions:
                judging.judge(completion)
                watch()
    except _OutOfReachError:
        return False
    return True


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
