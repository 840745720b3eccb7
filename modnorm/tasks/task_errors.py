"""What a task's own code raises, told with the task, the row and the place in the code."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from modnorm.errors import EvaluationError, InvalidInputError, ModnormError
from modnorm.tasks.protocol import Message, Row, Task

_NO_FAULTS = (ModnormError, MemoryError)
"""What tells of the input, the sandbox or the machine, not of a task."""
_MAX_TEXT = 500
"""Characters of what an exception says, which may hold all that a model wrote."""


@contextmanager
def attribute_to_task(
    task: Task,
    subject: str,
    kind: type[InvalidInputError | EvaluationError],
    *,
    but: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Turn what the code of a task raises inside the context into an error that names it.

    Args:
        task: The task.
        subject: What it was given: `selection row 3`.
        kind: What to raise.
        but: What passes as it is, as errors of the tree and a lack of memory do.
    """
    try:
        yield
    # An exit of the task would be one of whoever calls it, worker or service.
    except (Exception, SystemExit) as error:
        if isinstance(error, (*_NO_FAULTS, *but)):
            raise
        raise kind(
            f"task {task.name}, {subject}: {type(error).__name__}: {str(error)[:_MAX_TEXT]}, "
            f"raised at {_place(error)}",
            field="task.name",
            remedy="mend the task, or leave the row out",
        ) from error


def render_prompts(task: Task, rows: Sequence[Row], called: str) -> list[tuple[Message, ...]]:
    """Return the prompts of rows, in their order.

    Args:
        task: Makes prompts of rows.
        rows: The rows.
        called: What a row is called in errors, before its index: `selection row`.

    Raises:
        InvalidInputError: the task's code raises; the message names the row.
    """
    prompts = []
    for index, row in enumerate(rows):
        with attribute_to_task(task, f"{called} {index}", InvalidInputError):
            prompts.append(task.messages(row))
    return prompts


def _place(error: BaseException) -> str:
    """Return file and line of an exception's last frame."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return f"{frame.f_code.co_filename}:{line}"
