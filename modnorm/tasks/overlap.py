"""Rows that are in two sets at once: what chose something is no test of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.spec import DataSpec
from modnorm.tasks.protocol import Message, Row, Task


@dataclass(frozen=True, slots=True)
class SharedRange:
    """Places in a source."""

    start: int
    stop: int | None
    """First place after them; None where they go on to the end."""


def shared_prompts(
    task: Task, rows: Sequence[Row], others: Sequence[Row]
) -> list[tuple[int, int]]:
    """Return which rows ask what others ask, whatever else stands in them.

    Args:
        task: Makes prompts of rows.
        rows: Rows that are looked for.
        others: Rows that they are looked for in.

    Returns:
        For each of `rows` that is among `others`, in order: its index, and the first index there.
    """
    # A tuple by its type, but nothing else minds the list of a task that is not type-checked.
    known: dict[tuple[Message, ...], int] = {}
    for index, other in enumerate(others):
        known.setdefault(tuple(task.messages(other)), index)
    asked = [(index, known.get(tuple(task.messages(row)))) for index, row in enumerate(rows)]
    return [(index, found) for index, found in asked if found is not None]


def shared_range(rows: DataSpec, others: DataSpec) -> SharedRange | None:
    """Return the places in a source that both name, which is known without the rows.

    Args:
        rows: Rows by source, offset and limit.
        others: The same.
    """
    whole = {"offset": 0, "limit": None}
    if rows.model_copy(update=whole) != others.model_copy(update=whole):
        return None
    start = max(rows.offset, others.offset)
    stops = [one.offset + one.limit for one in (rows, others) if one.limit is not None]
    stop = min(stops, default=None)
    return SharedRange(start, stop) if stop is None or start < stop else None
