"""Judging stored completions anew: no model takes part."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from modnorm.errors import InvalidInputError
from modnorm.tasks.protocol import Judgement, Row, Task


class StoredCompletion(Protocol):
    """What was said to one row; `modnorm.search.scoring.Answer` is one."""

    @property
    def row(self) -> int:
        """Index of the row."""

    @property
    def completion(self) -> str:
        """The text."""


def rescore(
    answers: Iterable[StoredCompletion], rows: Sequence[Row], task: Task
) -> tuple[Judgement, ...]:
    """Return the judgement of each stored completion, in their order.

    Args:
        answers: Completions, each with the index of its row.
        rows: The rows that they answered, in the task's schema.
        task: Judges them; its scorer need not be the one that judged them first.

    Raises:
        InvalidInputError: an answer names a row that does not exist.
        EngineError: the task runs programs, and its sandbox failed.
    """
    return tuple(_judge(answer, rows, task) for answer in answers)


def _judge(answer: StoredCompletion, rows: Sequence[Row], task: Task) -> Judgement:
    if not 0 <= answer.row < len(rows):
        raise InvalidInputError(
            f"an answer is to row {answer.row}, but there are {len(rows)} rows",
            field="answers.row",
        )
    return task.judge(rows[answer.row], answer.completion)
