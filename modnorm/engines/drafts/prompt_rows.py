"""Numbers of prompts, which name the rows of the workers' answer tables."""

from collections import OrderedDict
from collections.abc import Sequence

from modnorm.engines.drafts.answer_table import PROMPTS


class PromptRows:
    """Gives each prompt a row; the prompt that was used longest ago loses its row to a new one.

    Args:
        limit: Number of rows.
    """

    def __init__(self, limit: int = PROMPTS) -> None:
        self._limit = limit
        self._rows: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._reused: list[int] = []

    def row_of(self, prompt: Sequence[int]) -> int:
        """Return the row of a prompt."""
        key = tuple(prompt)
        if (row := self._rows.pop(key, None)) is None:
            row = len(self._rows)
            if row == self._limit:
                _, row = self._rows.popitem(last=False)
                self._reused.append(row)
        self._rows[key] = row
        return row

    def take_reused(self) -> list[int]:
        """Return the rows that got another prompt since the last call."""
        reused, self._reused = self._reused, []
        return reused
