"""Judges stored completions again, without a model."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from modnorm.errors import EngineError, InvalidInputError
from modnorm.tasks.protocol import Judgement, Row, Task
from modnorm.tasks.task_errors import judge

_ATTEMPTS = 3
"""Attempts to run a program if its sandbox fails; a failure is no verdict."""


class StoredCompletion(Protocol):
    """A stored completion of one row, for instance `modnorm.search.answer.Answer`."""

    @property
    def row(self) -> int:
        """Index of the row."""

    @property
    def completion(self) -> str:
        """The completion's text."""


def rescore(
    answers: Iterable[StoredCompletion],
    rows: Sequence[Row],
    task: Task,
    *,
    judges: Executor | None = None,
) -> tuple[Judgement, ...]:
    """Return the judgement of each stored completion, in their order.

    Raises:
        InvalidInputError: an answer names a row that does not exist.
        IncompatibleError: the task's code raised; the message names the row.
        EngineError: the task runs programs, and its sandbox failed at every attempt.
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
    return judge(task, rows[answer.row], answer.completion, f"row {answer.row}")
