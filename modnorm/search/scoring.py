"""One candidate on one set of rows: answers, rewards and votes."""

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
from modnorm.search.judging import Answer, Judging
from modnorm.search.stopping import EarlyStop, Interval, score_interval
from modnorm.search.watching import OutOfReachError, Rest, Resting, Watch
from modnorm.tasks.protocol import Row, Task


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
    resting: Resting | None = None,
    called: Callable[[int], str] = "row {}".format,
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
        resting: Says when the candidate is parked for others; None where it runs through.
        called: What the row of an index is called in errors.

    Raises:
        CandidateError: the candidate cannot be evaluated.
        IncompatibleError: the scale map is of another model, or the code of the task raises.
        EngineError: the infrastructure failed.
    """
    started = time.perf_counter()
    with ExitStack() as undone:
        judging = undone.enter_context(Judging(judges, task, rows, called))
        has_room = partial(engine.has_room, prompts, limits)
        rest = Rest(engine.parked, has_room, judging, resting)
        watch = Watch(judging, stop, on_progress, rest)
        with engine.candidate(descriptor, scale_map) as resolved:
            ready = time.perf_counter()
            whole = _complete(engine, prompts, limits, judging, watch)
            generated = time.perf_counter()
        restored = time.perf_counter()
        some = None if whole else judging.finished()
        undone.pop_all()
    stopped = None if some is None or stop is None else _interval(some, len(rows), stop)
    return Answered(
        judging,
        CandidateResult(
            descriptor=resolved,
            answers=some or (),
            switch_seconds=(ready - started) + (restored - generated) + rest.switching,
            generate_seconds=generated - ready - rest.seconds,
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

    def __init__(self, judging: "Judging", result: CandidateResult, *, whole: bool) -> None:
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


def _complete(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    limits: GenerationLimits,
    judging: Judging,
    watch: Watch,
) -> bool:
    """Have the prompts completed, and every completion judged; return whether all of them are."""
    try:
        with closing(engine.generate(prompts, limits, poll=watch)) as completions:
            for completion in completions:
                judging.judge(completion)
                watch()
    except OutOfReachError:
        return False
    return True
