"""Judging stored completions anew: no model takes part."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from modnorm.errors import EngineError, IncompatibleError, InvalidInputError
from modnorm.tasks.protocol import Judgement, Row, Task
from modnorm.tasks.task_errors import attribute_to_task

_ATTEMPTS = 3
"""How often a program is run whose sandbox fails: that is no verdict."""


class StoredCompletion(Protocol):
    """What was said to one row; `modnorm.search.scoring.Answer` is one."""

    @property
    def row(self) -> int:
        """Index of the row."""

    @property
    def completion(self) -> str:
        """The text."""


def rescore(
    answers: Iterable[StoredCompletion],
    rows: Sequence[Row],
    task: Task,
    *,
    judges: Executor | None = None,
) -> tuple[Judgement, ...]:
    """Return the judgement of each stored completion, in their order.

    Args:
        answers: Completions, each with the index of its row.
        rows: The rows that they answered, in the task's schema.
        task: Judges them; its scorer need not be the one that judged them first.
        judges: Threads that judge several at a time, which pays where programs are run.

    Raises:
        InvalidInputError: an answer names a row that does not exist.
        IncompatibleError: the task's code raises; the message names the row.
        EngineError: the task runs programs, and its sandbox fails again and again.
        UnavailableError: the task runs programs, and its sandbox cannot be reached.
    """

    def judge(answer: StoredCompletion) -> Judgement:
        return _judge(answer, rows, task)

    return tuple(map(judge, answers) if judges is None else judges.map(judge, answers))


@retry(
    retry=retry_if_exception_type(EngineError), stop=stop_after_attempt(_ATTEMPTS), reraise=True
)
def _judge(answer: StoredCompletion, rows: Sequence[Row], task: Task) -> Judgement:
    if not 0 <= answer.row < len(rows):
        raise InvalidInputError(
            f"an answer is to row {answer.row}, but there are {len(rows)} rows",
            field="answers.row",
        )
    with attribute_to_task(task, f"row {answer.row}", IncompatibleError):
        return task.judge(rows[answer.row], answer.completion)
