"""Answers by prompt, in bounded memory on the device that drafts.

`tokens` is a ring of token ids. Each answer is a span of it. A prompt keeps its latest answers;
when the ring is full, the oldest answers of all prompts make room.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    def __init__(self, limit: int = PROMPTS) -> None:
        self._limit = limit
        self._rows: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._reused: list[int] = []

    def row_of(self, prompt: Sequence[int]) -> int:
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
