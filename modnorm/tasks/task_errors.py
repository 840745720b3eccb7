"""Calls of a task's code: prompts, judges, metrics, and the errors they raise."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real

from modnorm.errors import EvaluationError, IncompatibleError, InvalidInputError, ModnormError
from modnorm.spec import DataSpec
from modnorm.tasks.columns import holds_half_pair
from modnorm.tasks.protocol import Judgement, Message, Row, Task

_PASSED_ON = (ModnormError, MemoryError)
"""Exceptions that concern the input, the sandbox or the machine, not the task's code."""
MAX_REWARD = 1e30
"""Means of such rewards, and the steps computed from them, stay within float32."""
_MAX_TEXT = 500
"""Longest exception text in characters; it may contain a whole completion."""


@contextmanager
def attribute_to_task(
    task: Task,
    subject: str,
    kind: type[InvalidInputError | EvaluationError],
    *,
    but: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Convert exceptions of a task's code inside the context to an error that names the task."""
    try:
        yield
    # SystemExit of a task's code would end the worker or service.
    except (Exception, SystemExit) as error:
        if isinstance(error, (*_PASSED_ON, *but)):
            raise
        raise kind(
            f"task {task.name}, {subject}: {type(error).__name__}: {str(error)[:_MAX_TEXT]}, "
            f"raised at {_place(error)}",
            field="task.name",
        ) from error


def render_prompts(task: Task, rows: Sequence[Row], row_name: str) -> list[tuple[Message, ...]]:
    """Return the prompts of rows, in their order."""
    prompts = []
    for index, row in enumerate(rows):
        with attribute_to_task(task, f"{row_name} {index}", InvalidInputError):
            messages = task.messages(row)
        if not _is_prompt(messages):
            raise InvalidInputError(
                f"task {task.name}, {row_name} {index}: messages() returned {messages!r:.100}",
                field="task.name",
            )
        prompts.append(messages)
    return prompts


def judge(task: Task, row: Row, completion: str, row_label: str) -> Judgement:
    with attribute_to_task(task, row_label, IncompatibleError, but=(OSError,)):
        judgement = task.judge(row, completion)
    if not is_judgement(judgement):
        raise IncompatibleError(
            f"task {task.name}, {row_label}: judge() returned {judgement!r:.{_MAX_TEXT}}",
            field="task.name",
            remedy=f"return a Judgement: a reward up to {MAX_REWARD:g}, a vote (text without "
            "half surrogate pairs, or None), and a bool that is false without a vote",
        )
    return judgement


def metric(
    task: Task,
    rows: Sequence[Row],
    correct: Sequence[bool],
    kind: type[InvalidInputError | IncompatibleError] = IncompatibleError,
) -> float:
    """Return a task's metric of one answer a row."""
    with attribute_to_task(task, "metric()", kind):
        value = task.metric(rows, correct)
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise kind(
            f"task {task.name}: metric() of {len(rows)} rows, {sum(correct)} of them right, "
            f"returned {value!r:.100}",
            field="task.name",
        )
    return float(value)


def _is_prompt(messages: object) -> bool:
    return (
        isinstance(messages, Sequence)
        and len(messages) > 0
        and all(isinstance(message, Message) for message in messages)
    )


def is_judgement(judgement: object) -> bool:
    """Return whether a scorer's result can be stored."""
    return (
        isinstance(judgement, Judgement)
        and isinstance(judgement.reward, Real)
        and _is_bounded(judgement.reward)
        and isinstance(judgement.vote, str | None)
        and not holds_half_pair(judgement.vote or "")
        and isinstance(judgement.correct, bool)
        and not (judgement.correct and judgement.vote is None)
    )


def _is_bounded(reward: Real) -> bool:
    try:
        return abs(float(reward)) <= MAX_REWARD
    except OverflowError:
        return False


def _place(error: BaseException) -> str:
    """Return file and line of an exception's last frame."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"


def shared_prompts(
    task: Task, rows: Sequence[Row], others: Sequence[Row]
) -> list[tuple[int, int]]:
    """Return, for each row that shares its prompt, its index and the first in `others`."""
    # A task without type checks may return lists, which cannot be keys.
    first_index: dict[tuple[Message, ...], int] = {}
    for index, prompt in enumerate(render_prompts(task, others, "row")):
        first_index.setdefault(tuple(prompt), index)
    prompts = render_prompts(task, rows, "row")
    matches = [(index, first_index.get(tuple(prompt))) for index, prompt in enumerate(prompts)]
    return [(index, match) for index, match in matches if match is not None]


def shared_range(rows: DataSpec, others: DataSpec) -> tuple[int, int | None] | None:
    """Return the range of a source that two specs share, without reading rows."""
    whole = {"offset": 0, "limit": None}
    if rows.model_copy(update=whole) != others.model_copy(update=whole):
        return None
    start = max(rows.offset, others.offset)
    stops = [spec.offset + spec.limit for spec in (rows, others) if spec.limit is not None]
    stop = min(stops, default=None)
    return (start, stop) if stop is None or start < stop else None
