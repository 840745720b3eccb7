"""Sends answers to the workers, which draft from them."""

from collections.abc import Mapping, Sequence

import numpy as np

from modnorm.engines.drafts.matching import CONTEXT, PromptRows
from modnorm.engines.vllm.rank_group import RankGroup
from modnorm.engines.vllm.speculator import row_of

_LEAST = 16
"""Tokens of an unfinished answer that is worth keeping."""


class AnswerFeed:
    """Names requests after their prompts, and collects their answers."""

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks = ranks
        self._prompts = PromptRows()
        self._ends: dict[int, Sequence[int]] = {}
        self._answers: list[tuple[int, Sequence[int]]] = []

    def name(self, number: int, prompt: Sequence[int]) -> str:
        """Return the id of a request for a prompt."""
        return f"{number}.{self._row_of(prompt)}"

    def add(self, request_id: str, answer: Sequence[int]) -> None:
        """Collect a finished answer."""
        self._answers.append((row_of(request_id), answer))

    def add_unfinished(self, tokens: Mapping[str, Sequence[int]]) -> None:
        """Collect the tokens of requests that will not finish."""
        for request_id, answer in tokens.items():
            if len(answer) >= _LEAST:
                self.add(request_id, answer)

    def send(self) -> None:
        """Send all collected answers to the workers."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        spans = [[*_padded(self._ends[row]), *answer] for row, answer in answers]
        tokens = np.concatenate([np.asarray(span, dtype=np.int32) for span in spans])
        self._ranks.add_answers(
            self._prompts.take_reused(),
            [row for row, _ in answers],
            [len(span) for span in spans],
            tokens.tobytes(),
        )

    def _row_of(self, prompt: Sequence[int]) -> int:
        row = self._prompts.row_of(prompt)
        self._ends[row] = prompt[-CONTEXT:]
        return row


def _padded(end: Sequence[int]) -> list[int]:
    """Return the end of a prompt with `CONTEXT` places; -1 equals no token."""
    return [*[-1] * (CONTEXT - len(end)), *end]
