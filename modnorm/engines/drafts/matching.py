"""Drafts by the longest matching suffix.

The end of a sequence is compared with every place of its sources: the answers to the same prompt,
and the sequence itself. The draft is what follows the best place. In this order, better is:

1. more equal tokens before the place, at most `SUFFIX`;
2. an answer before the sequence itself, a later answer before an earlier one;
3. a place nearer to the sequence's own length, then the later place.

`match_kernels` does the same on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modnorm.engines.drafts.answer_table import AnswerTable, Tokens

SUFFIX = 16
"""Most tokens of a sequence's end that are compared."""
CONTEXT = SUFFIX
"""Tokens of the prompt's end that an answer in the table begins with."""
NO_TOKEN = -1
"""Stands after the end of a draft."""


@dataclass(frozen=True, slots=True, order=True)
class Match:
    """A place of a source that continues the end of a sequence; a greater one is better."""

    equal: int = 0
    """Equal tokens before the place; 0 if no place continues the end."""
    rank: int = 0
    """Minus the number of the source. The sequence itself has the last number."""
    nearness: int = 0
    """Minus the distance from the sequence's own length."""
    place: int = 0

    @property
    def source(self) -> int:
        """Number of the source."""
        return -self.rank


def propose(
    table: AnswerTable, sequences: Sequence[tuple[int, Tokens, int]], count: int
) -> list[list[int]]:
    """Return a draft for each sequence.

    Args:
        table: The answers, on the CPU.
        sequences: Row of the prompt, tokens of prompt and answer, tokens of the prompt.
        count: Most tokens of a draft.
    """
    tokens, spans = table.tokens.numpy(), table.spans.numpy()
    drafts = []
    for row, text, prompt in sequences:
        kept = spans[row] if row >= 0 else ()
        answers = [tokens[start : start + size] for start, size in kept]
        found = best_match(answers, text, prompt)
        source = [*answers, text][found.source]
        draft = source[found.place : found.place + count] if found.equal else ()
        drafts.append([int(token) for token in draft])
    return drafts


def best_match(answers: Sequence[Tokens], text: Tokens, prompt: int) -> Match:
    """Return the best place of all sources.

    Args:
        answers: Answers to the prompt, the latest first; each begins with the prompt's last
            `CONTEXT` tokens.
        text: Tokens of prompt and answer.
        prompt: Tokens of the prompt.
    """
    own = len(text) - prompt + CONTEXT
    matches = [_best_place(answer, text, own, number) for number, answer in enumerate(answers)]
    matches.append(_best_place(text, text, len(text), len(answers)))
    return max(matches)


def _best_place(source: Tokens, text: Tokens, goal: int, number: int) -> Match:
    """Return the best place of a source; nearer to the place `goal` is better."""
    places = np.arange(1, len(source))
    equal = np.ones(len(places), dtype=bool)
    lengths = np.zeros(len(places), dtype=np.int64)
    for back in range(1, min(SUFFIX, len(text)) + 1):
        equal &= (places >= back) & (source[np.maximum(places - back, 0)] == text[-back])
        if not equal.any():
            break
        lengths += equal
    if not lengths.any():
        return Match(rank=-number)
    longest = places[lengths == lengths.max()]
    distances = abs(longest - goal)
    place = int(longest[distances == distances.min()][-1])
    return Match(int(lengths.max()), -number, -abs(place - goal), place)
