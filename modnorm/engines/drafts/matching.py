"""Drafts by the longest matching suffix.

The end of a sequence is compared with every place of its sources: the answers to the same prompt,
and the sequence itself. The draft is what follows the best place. In this order, better is:

1. more equal tokens before the place, at most `SUFFIX`;
2. the answer that the last draft came from;
3. an answer before the sequence itself, a later answer before an earlier one;
4. a place nearer to the expected one, then the later place. Expected is the sequence's own length,
   in the answer that the last draft came from as far ahead of it as then.

`match_kernels` does the same on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from modnorm.engines.drafts.answer_table import AnswerTable, Tokens

SUFFIX = 16
"""Most tokens of a sequence's end that are compared."""
CONTEXT = SUFFIX
"""Tokens of the prompt's end that an answer in the table begins with."""
NO_TOKEN = -1
"""Stands after the end of a draft."""


class Followed(NamedTuple):
    """The answer that the last draft of a sequence came from."""

    source: int = -1
    """Number of the answer; -1 for none."""
    ahead: int = 0
    """Tokens that its place was ahead of the sequence's own length."""


_NOTHING = Followed()


class DraftRequest(NamedTuple):
    """A sequence that wants a draft."""

    row: int
    """Row of the prompt, -1 for none."""
    text: Tokens
    """Tokens of prompt and answer."""
    prompt: int
    """Tokens of the prompt."""
    followed: Followed = _NOTHING


@dataclass(frozen=True, slots=True, order=True)
class Match:
    """A place of a source that continues the end of a sequence; a greater one is better."""

    equal: int = 0
    """Equal tokens before the place; 0 if no place continues the end."""
    follows: bool = False
    """Whether the last draft came from this source."""
    rank: int = 0
    """Minus the number of the source. The sequence itself has the last number."""
    nearness: int = 0
    """Minus the distance from the expected place."""
    place: int = 0

    @property
    def source(self) -> int:
        return -self.rank


def propose(
    table: AnswerTable, sequences: Sequence[DraftRequest], count: int
) -> list[tuple[list[int], Followed]]:
    tokens, spans = table.tokens.numpy(), table.spans.numpy()
    drafts = []
    for one in sequences:
        kept = spans[one.row] if one.row >= 0 else ()
        answers = [tokens[start : start + size] for start, size in kept]
        found = best_match(answers, one.text, one.prompt, one.followed)
        source = [*answers, one.text][found.source]
        draft = source[found.place : found.place + count] if found.equal else ()
        drafts.append(([int(token) for token in draft], followed_after(found, one, len(answers))))
    return drafts


def followed_after(found: Match, sequence: DraftRequest, answers: int) -> Followed:
    """Return the answer that a sequence follows after a draft; the last one if none was found."""
    if not found.equal or found.source == answers:
        return sequence.followed
    return Followed(found.source, found.place - _own_place(sequence.text, sequence.prompt))


def best_match(
    answers: Sequence[Tokens], text: Tokens, prompt: int, followed: Followed = _NOTHING
) -> Match:
    """Return the best place of all sources."""
    own = _own_place(text, prompt)
    matches = []
    for number, answer in enumerate(answers):
        follows = number == followed.source
        goal = own + followed.ahead if follows else own
        matches.append(replace(_best_place(answer, text, goal, number), follows=follows))
    matches.append(_best_place(text, text, len(text), len(answers)))
    return max(matches)


def _own_place(text: Tokens, prompt: int) -> int:
    """Return the place of an answer that is as far as the sequence."""
    return len(text) - prompt + CONTEXT


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
    nearness = -abs(place - goal)
    return Match(int(lengths.max()), rank=-number, nearness=nearness, place=place)
