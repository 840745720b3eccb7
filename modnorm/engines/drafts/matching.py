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

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

Tokens = npt.NDArray[np.int32]

SOURCES = 32
"""Answers kept for each prompt."""
TOKENS = 2**24
"""Token ids kept in all, 4 bytes each: 1,000 prompts with 16 answers of 1,000 tokens."""
PROMPTS = 2**13
"""Prompts with answers at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Span:
    row: int
    start: int
    size: int


class AnswerTable:
    """The latest answers to each prompt.

    Attributes:
        tokens: The ring, int32.
        spans: Start and length of each answer, int32 [prompts, sources, 2], the latest first;
            length 0 where there is none.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        prompts: int = PROMPTS,
        sources: int = SOURCES,
        tokens: int = TOKENS,
    ) -> None:
        self.tokens = torch.zeros(tokens, dtype=torch.int32, device=device)
        self.spans = torch.zeros((prompts, sources, 2), dtype=torch.int32, device=device)
        self._answers: defaultdict[int, deque[_Span]] = defaultdict(lambda: deque(maxlen=sources))
        self._ring: deque[_Span] = deque()
        self._next = 0

    def add(self, answers: Iterable[tuple[int, Sequence[int] | Tokens]]) -> None:
        """Add answers: the row of the prompt, and the tokens, which may begin with its end."""
        changed: dict[int, None] = {}
        written: list[tuple[int, Tokens]] = []
        for row, answer in answers:
            tokens = np.asarray(answer[: self.tokens.numel()], dtype=np.int32)
            start = self._allocate(row, len(tokens), changed)
            written.append((start, tokens))
            changed[row] = None
        self._write(written)
        self._update(changed)

    def clear(self, rows: Iterable[int]) -> None:
        """Forget the answers of rows, which get other prompts."""
        changed = dict.fromkeys(rows)
        for row in changed:
            self._answers[row].clear()
        self._update(changed)

    def _allocate(self, row: int, size: int, changed: dict[int, None]) -> int:
        """Return the place of a new answer; add the rows that lose answers for it to `changed`."""
        capacity = self.tokens.numel()
        if self._next + size > capacity:
            self._free(self._next, capacity, changed)
            self._next = 0
        self._free(self._next, self._next + size, changed)
        span = _Span(row, self._next, size)
        self._next += size
        self._ring.append(span)
        self._answers[row].appendleft(span)
        return span.start

    def _free(self, first: int, last: int, changed: dict[int, None]) -> None:
        """Drop the oldest answers until none uses these places of the ring."""
        while self._ring and first <= self._ring[0].start < last:
            span = self._ring.popleft()
            if span in self._answers[span.row]:
                self._answers[span.row].remove(span)
                changed[span.row] = None

    def _write(self, written: Sequence[tuple[int, Tokens]]) -> None:
        """Write answers in their order; those that follow one another take one copy."""
        runs: list[tuple[int, list[Tokens]]] = []
        end = -1
        for start, tokens in written:
            if start != end:
                runs.append((start, []))
            runs[-1][1].append(tokens)
            end = start + len(tokens)
        for start, parts in runs:
            joined = torch.from_numpy(np.concatenate(parts))
            self.tokens[start : start + len(joined)] = joined.to(self.tokens.device)

    def _update(self, rows: Iterable[int]) -> None:
        """Write the spans of rows."""
        rows = list(rows)
        if not rows:
            return
        _, sources, _ = self.spans.shape
        spans = np.zeros((len(rows), sources, 2), dtype=np.int32)
        for place, row in enumerate(rows):
            for source, span in enumerate(self._answers[row]):
                spans[place, source] = span.start, span.size
        self.spans[rows] = torch.from_numpy(spans).to(self.spans.device)


class PromptRows:
    """Gives each prompt a row; the prompt that was used longest ago loses its row to a new one."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._reused: list[int] = []

    def row_of(self, prompt: Sequence[int]) -> int:
        key = tuple(prompt)
        if (row := self._rows.pop(key, None)) is None:
            row = len(self._rows)
            if row == PROMPTS:
                _, row = self._rows.popitem(last=False)
                self._reused.append(row)
        self._rows[key] = row
        return row

    def take_reused(self) -> list[int]:
        """Return the rows that got another prompt since the last call."""
        reused, self._reused = self._reused, []
        return reused


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


class DraftRequest(NamedTuple):
    """A sequence that wants a draft."""

    row: int
    """Row of the prompt, -1 for none."""
    text: Tokens
    """Tokens of prompt and answer."""
    prompt: int
    """Tokens of the prompt."""
    followed: Followed


class Match(NamedTuple):
    """A place of a source that continues the end of a sequence; a greater one is better."""

    equal: int
    """Equal tokens before the place; 0 if no place continues the end."""
    follows: bool
    """Whether the last draft came from this source."""
    rank: int
    """Minus the number of the source. The sequence itself has the last number."""
    nearness: int = 0
    """Minus the distance from the expected place."""
    place: int = 0


def propose(
    table: AnswerTable, sequences: Sequence[DraftRequest], count: int
) -> list[tuple[list[int], Followed]]:
    """Return the draft of each sequence, and the answer that it follows from now on."""
    tokens, spans = table.tokens.numpy(), table.spans.numpy()
    drafts = []
    for row, text, prompt, followed in sequences:
        answers = [tokens[start : start + size] for start, size in spans[row]] if row >= 0 else []
        own = len(text) - prompt + CONTEXT  # the place of an answer that is as far
        best = _best_place(text, text, len(text), -len(answers))
        for number, answer in enumerate(answers):
            follows = number == followed.source
            goal = own + followed.ahead if follows else own
            best = max(best, _best_place(answer, text, goal, -number, follows=follows))
        draft = [*answers, text][-best.rank][best.place :][:count] if best.equal else ()
        found = best.equal and -best.rank < len(answers)
        then = Followed(-best.rank, best.place - own) if found else followed
        drafts.append(([int(token) for token in draft], then))
    return drafts


def _best_place(
    source: Tokens, text: Tokens, goal: int, rank: int, *, follows: bool = False
) -> Match:
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
        return Match(0, follows, rank)
    longest = places[lengths == lengths.max()]
    distances = abs(longest - goal)
    place = int(longest[distances == distances.min()][-1])
    return Match(int(lengths.max()), follows, rank, -abs(place - goal), place)
