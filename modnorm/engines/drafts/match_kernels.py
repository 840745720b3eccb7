"""Triton kernels of `matching`: drafts for all sequences of a step, without the host."""

import torch
import triton
import triton.language as tl

from modnorm.engines.drafts.matching import CONTEXT, NO_TOKEN, SUFFIX, AnswerTable

_BLOCK = 256
"""Places that a program compares at once."""


@triton.jit
def _best_place(
    source: tl.tensor,
    size: tl.tensor,
    end: tl.tensor,
    limit: tl.tensor,
    goal: tl.tensor,
    STEP: tl.constexpr,
    SUFFIX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """Return the best place of a source as a number: equal tokens, nearness, place.

    `end` points to the last token of a sequence of `limit` tokens; `STEP` leads to the one before.
    """
    best = tl.zeros((BLOCK,), dtype=tl.int64)
    for first in range(0, size, BLOCK):
        place = first + tl.arange(0, BLOCK)
        equal = (place > 0) & (place < size)
        length = tl.zeros((BLOCK,), dtype=tl.int64)
        for back in tl.static_range(SUFFIX):
            inside = equal & (place > back)
            token = tl.load(source + place - 1 - back, mask=inside, other=-2)
            equal = inside & (token == tl.load(end + back * STEP, mask=back < limit, other=-3))
            length += equal.to(tl.int64)
        nearness = (1 << 21) - 1 - tl.abs(place - goal).to(tl.int64)
        number = (length << 42) | (nearness << 21) | place.to(tl.int64)
        best = tl.where(length > 0, tl.maximum(best, number), best)
    return tl.max(best, axis=0)


@triton.jit
def _match_own_text(
    texts: tl.tensor,
    stride: tl.tensor,
    slots: tl.tensor,
    lengths: tl.tensor,
    suffixes: tl.tensor,
    best: tl.tensor,
    SOURCES: tl.constexpr,
    SUFFIX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Copy the end of each sequence, and find the best place in the sequence itself."""
    sequence = tl.program_id(0)
    slot = tl.load(slots + sequence).to(tl.int64)
    text = texts + slot * stride
    size = tl.load(lengths + slot).to(tl.int32)
    end = text + size - 1
    back = tl.arange(0, SUFFIX)
    token = tl.load(end - back, mask=back < size, other=-3)
    tl.store(suffixes + sequence * SUFFIX + back, token)
    number = _best_place(text, size, end, size, size, -1, SUFFIX, BLOCK)
    tl.store(best + sequence * (SOURCES + 1) + SOURCES, number)


@triton.jit
def _match_answers(
    ring: tl.tensor,
    spans: tl.tensor,
    rows: tl.tensor,
    slots: tl.tensor,
    lengths: tl.tensor,
    prompts: tl.tensor,
    followed: tl.tensor,
    suffixes: tl.tensor,
    best: tl.tensor,
    SOURCES: tl.constexpr,
    CONTEXT: tl.constexpr,
    SUFFIX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Find the best place in one answer for one sequence."""
    sequence = tl.program_id(0)
    answer = tl.program_id(1)
    slot = tl.load(slots + sequence).to(tl.int64)
    row = tl.load(rows + sequence).to(tl.int64)
    span = spans + (tl.maximum(row, 0) * SOURCES + answer) * 2
    size = tl.load(span + 1)
    size = tl.where(row < 0, 0, size)
    goal = tl.load(lengths + slot).to(tl.int32) - tl.load(prompts + slot).to(tl.int32) + CONTEXT
    is_followed = tl.load(followed + slot * 2) == answer
    goal = tl.where(is_followed, goal + tl.load(followed + slot * 2 + 1), goal)
    end = suffixes + sequence * SUFFIX
    source = ring + tl.load(span)
    number = _best_place(source, size, end, SUFFIX, goal, 1, SUFFIX, BLOCK)
    tl.store(best + sequence * (SOURCES + 1) + answer, number)


@triton.jit
def _collect(
    texts: tl.tensor,
    stride: tl.tensor,
    ring: tl.tensor,
    spans: tl.tensor,
    rows: tl.tensor,
    slots: tl.tensor,
    lengths: tl.tensor,
    prompts: tl.tensor,
    followed: tl.tensor,
    best: tl.tensor,
    drafts: tl.tensor,
    COUNT: tl.constexpr,
    SOURCES: tl.constexpr,
    CONTEXT: tl.constexpr,
    WIDTH: tl.constexpr,
    ENTRIES: tl.constexpr,
    NO_TOKEN: tl.constexpr,
) -> None:
    """Copy the draft of each sequence from its best source, which it follows from now on."""
    sequence = tl.program_id(0)
    slot = tl.load(slots + sequence).to(tl.int64)
    entry = tl.arange(0, ENTRIES)
    numbers = tl.load(best + sequence * (SOURCES + 1) + entry, mask=entry <= SOURCES, other=0)
    # The number of equal tokens decides, then the source: the followed one, then earlier entries.
    follows = ((entry == tl.load(followed + slot * 2)) & (entry < SOURCES)).to(tl.int64)
    order = ((numbers >> 42) * 2 + follows) * ENTRIES + ENTRIES - 1 - entry
    number = tl.max(order, axis=0)
    chosen = ENTRIES - 1 - number % ENTRIES
    place = tl.load(best + sequence * (SOURCES + 1) + chosen) & ((1 << 21) - 1)
    row = tl.maximum(tl.load(rows + sequence), 0).to(tl.int64)
    here = tl.arange(0, WIDTH)
    found = number >= 2 * ENTRIES
    wanted = (here < COUNT) & found
    if chosen == SOURCES:
        inside = wanted & (place + here < tl.load(lengths + slot))
        token = tl.load(texts + slot * stride + place + here, mask=inside, other=NO_TOKEN)
    else:
        span = spans + (row * SOURCES + chosen) * 2
        inside = wanted & (place + here < tl.load(span + 1))
        token = tl.load(ring + tl.load(span) + place + here, mask=inside, other=NO_TOKEN)
        goal = tl.load(lengths + slot) - tl.load(prompts + slot) + CONTEXT
        tl.store(followed + slot * 2, chosen.to(tl.int32), mask=found)
        tl.store(followed + slot * 2 + 1, (place - goal).to(tl.int32), mask=found)
    tl.store(drafts + sequence * COUNT + here, token.to(tl.int64), mask=here < COUNT)


class MatchKernels:
    """Drafts on a GPU."""

    def __init__(self, table: AnswerTable, *, sequences: int, count: int) -> None:
        device = table.tokens.device
        self._table = table
        self._sources = table.spans.shape[1]
        self._suffixes = torch.zeros((sequences, SUFFIX), dtype=torch.int32, device=device)
        shape = (sequences, self._sources + 1)
        self._best = torch.zeros(shape, dtype=torch.int64, device=device)
        # Of each slot: the answer that the sequence follows, and how far it is ahead.
        self._followed = torch.zeros((sequences, 2), dtype=torch.int32, device=device)
        self._followed[:, 0] = -1
        self.drafts = torch.zeros((sequences, count), dtype=torch.int64, device=device)
        """The last drafts, [sequences, count]; `NO_TOKEN` after the end of a draft."""

    def propose(
        self,
        rows: torch.Tensor,
        slots: torch.Tensor,
        texts: torch.Tensor,
        lengths: torch.Tensor,
        prompts: torch.Tensor,
    ) -> torch.Tensor:
        """Return the drafts of sequences, int64 [sequences, count].

        `rows` is each sequence's prompt row, -1 for none, and `slots` its row in the others, int32
        [sequences]; `texts` are tokens of prompt and answer, int32 [slots, width], `lengths` and
        `prompts` their numbers, int32 [slots].
        """
        sequences, count = len(rows), self.drafts.shape[1]
        ring, spans, sources = self._table.tokens, self._table.spans, self._sources
        stride = texts.stride(0)
        _match_own_text[(sequences,)](
            texts, stride, slots, lengths, self._suffixes, self._best, sources, SUFFIX, _BLOCK
        )
        _match_answers[(sequences, sources)](
            ring, spans, rows, slots, lengths, prompts, self._followed, self._suffixes, self._best,
            sources, CONTEXT, SUFFIX, _BLOCK,
        )  # fmt: skip
        _collect[(sequences,)](
            texts, stride, ring, spans, rows, slots, lengths, prompts, self._followed,
            self._best, self.drafts, count, sources, CONTEXT,
            triton.next_power_of_2(count), triton.next_power_of_2(sources + 1), NO_TOKEN,
        )  # fmt: skip
        return self.drafts[:sequences]
