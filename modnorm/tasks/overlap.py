"""Finds rows that two sets share, because rows used for a choice cannot test it.

Rows are shared if their prompts are equal. A question with another right answer is shared too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.spec import DataSpec
from modnorm.tasks.protocol import Message, Row, Task
from modnorm.tasks.task_errors import render_prompts


@dataclass(frozen=True, slots=True)
class SharedRange:
    """A range of rows in a source."""

    start: int
    stop: int | None
    """First index after the range; None if it extends to the end."""


def shared_prompts(
    task: Task, rows: Sequence[Row], others: Sequence[Row]
) -> list[tuple[int, int]]:
    """Return which rows have the same prompt as other rows.

    Returns:
        For each shared prompt, in order of `rows`: the index in `rows` and the first in `others`.

    Raises:
        InvalidInputError: the task's code raised or made no prompt.
    """
    # A task without type checks may return lists, which cannot be keys.
    first_index: dict[tuple[Message, ...], int] = {}
    for index, prompt in enumerate(render_prompts(task, others, "row")):
        first_index.setdefault(tuple(prompt), index)
    prompts = render_prompts(task, rows, "row")
    matches = [(index, first_index.get(tuple(prompt))) for index, prompt in enumerate(prompts)]
    return [(index, match) for index, match in matches if match is not None]


def count_shared_prompts(task: Task, choosing: Sequence[Row], heldout: Sequence[Row]) -> int:
    """Return how many held-out rows have the prompt of a row that chooses.

    Raises:
        InvalidInputError: the task's code raised or made no prompt.
    """
    return len(shared_prompts(task, heldout, choosing))


def shared_range(rows: DataSpec, others: DataSpec) -> SharedRange | None:
    """Return the range of a source that two specs share, without reading rows."""
    whole = {"offset": 0, "limit": None}
    if rows.model_copy(update=whole) != others.model_copy(update=whole):
        return None
    start = max(rows.offset, others.offset)
    stops = [spec.offset + spec.limit for spec in (rows, others) if spec.limit is not None]
    stop = min(stops, default=None)
    return SharedRange(start, stop) if stop is None or start < stop else None
