"""Errors that name the task, the row and the source line if a task's code raises."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from modnorm.errors import EvaluationError, InvalidInputError, ModnormError
from modnorm.tasks.protocol import Message, Row, Task

_PASSED_ON = (ModnormError, MemoryError)
"""Exceptions that concern the input, the sandbox or the machine, not the task's code."""
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
    """Convert exceptions of a task's code inside the context to an error that names the task.

    Args:
        task: The task.
        subject: The task's input, for the message: `selection row 3`.
        kind: Class of the raised error.
        but: More exceptions to pass on unchanged, like `ModnormError` and `MemoryError`.
    """
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
            remedy="fix the task, or remove the row",
        ) from error


def render_prompts(task: Task, rows: Sequence[Row], row_name: str) -> list[tuple[Message, ...]]:
    """Return the prompts of rows, in their order.

    Raises:
        InvalidInputError: the task's code raised; the message names the row.
    """
    prompts = []
    for index, row in enumerate(rows):
        with attribute_to_task(task, f"{row_name} {index}", InvalidInputError):
            prompts.append(task.messages(row))
    return prompts


def _place(error: BaseException) -> str:
    """Return file and line of an exception's last frame."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"
