"""Rows as people read them: the prompt and the right answer."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from modnorm.tasks.protocol import Row, Task, prompt_text, stated_gold


@dataclass(frozen=True, slots=True)
class ReadableRow:
    """The readable part of a row."""

    prompt: str | None
    """None where its task is not installed here."""
    gold: str | None
    """None where its task states none, too."""


def readable_rows(task: Task | None, rows: Iterable[str]) -> tuple[ReadableRow, ...]:
    """Return stored rows as people read them, in order.

    Args:
        task: Their task; None where it is not installed here.
        rows: Each row as JSON in the task's schema.
    """
    return tuple(_readable(task, json.loads(row)) for row in rows)


def _readable(task: Task | None, row: Row) -> ReadableRow:
    if task is None:
        return ReadableRow(None, None)
    return ReadableRow(prompt_text(task.messages(row)), stated_gold(task, row))
