"""Drafts against a literal search of all sources, on the CPU and in the GPU's kernels."""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.engines.drafts.matching import (
    CONTEXT,
    NO_TOKEN,
    SUFFIX,
    AnswerTable,
    DraftRequest,
    Followed,
    propose,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROMPT = 5
tokens = st.integers(0, 2)
texts = st.lists(tokens, min_size=PROMPT, max_size=40)
answers = st.lists(tokens, max_size=40)


def literal(
    sources: Sequence[Sequence[int]],
    text: Sequence[int],
    prompt: int,
    followed: tuple[int, int] = (-1, 0),
) -> tuple[list[int], tuple[int, int]]:
    """Search every place of every source; the last source is the text itself.

    Returns:
        The rest of the best source, and the answer that is followed with its lead.
    """
    best, found, own = (0, False, 0, 0, 0), list[int](), len(text) - prompt + CONTEXT
    for order, source in enumerate(sources):
        is_text = order == len(sources) - 1
        follows = not is_text and order == followed[0]
        goal = len(text) if is_text else own + followed[1] * follows
        for place in range(1, len(source)):
            equal = 0
            while (
                equal < min(SUFFIX, place, len(text))
                and source[place - 1 - equal] == text[-1 - equal]
            ):
                equal += 1
            rank = (equal, follows, -order, -abs(place - goal), place)
            if equal and rank > best:
                best, found = rank, list(source[place:])
    if best[0] and -best[2] < len(sources) - 1:
        followed = -best[2], best[4] - own
    return found, followed


def filled(sources: Sequence[Sequence[int]], device: torch.device) -> AnswerTable:
    """Return a table with the answers of row 1, the latest first, and others of row 0."""
    table = AnswerTable(device, prompts=3, sources=4, tokens=1000)
    for source in reversed(sources):
        table.add([(0, [7, 7, 7]), (1, source)])
    return table


@given(st.lists(answers, max_size=4), texts, st.integers(-1, 3), st.integers(-9, 9))
def test_the_longest_suffix_decides_then_the_later_answer_then_the_nearer_place(
    sources: list[list[int]], text: list[int], source: int, ahead: int
) -> None:
    table, followed = filled(sources, torch.device("cpu")), Followed(source, ahead)
    written = np.asarray(text, dtype=np.int32)
    expected, then = literal([*sources, text], text, PROMPT, followed)
    own, _ = literal([text], text, PROMPT)
    rows = [DraftRequest(row, written, PROMPT, followed) for row in (1, -1)]
    assert propose(table, rows, 6) == [(expected[:6], then), (own[:6], followed)]


@pytest.mark.skipif(not find_spec("triton"), reason="no Triton for this platform")
@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.lists(answers, max_size=4), texts), min_size=1, max_size=3))
def test_the_kernels_draft_the_same(cases: list[tuple[list[list[int]], list[int]]]) -> None:
    from modnorm.engines.drafts.match_kernels import MatchKernels  # noqa: PLC0415 - needs Triton

    table = AnswerTable(DEVICE, prompts=len(cases), sources=4, tokens=1000)
    held = torch.zeros((len(cases) + 2, 50), dtype=torch.int32, device=DEVICE)
    lengths = torch.zeros(len(cases) + 2, dtype=torch.int32, device=DEVICE)
    for row, (sources, text) in enumerate(cases):
        table.add((row, source) for source in reversed(sources))
        held[row + 2, : len(text)] = torch.tensor(text, dtype=torch.int32)
        lengths[row + 2] = len(text)
    kernels = MatchKernels(table, sequences=8, count=5)
    rows = torch.arange(len(cases), dtype=torch.int32, device=DEVICE)
    prompts = torch.full_like(lengths, PROMPT)
    followed = [(-1, 0) for _ in cases]
    # The second draft depends on the answer that the first came from.
    for _ in range(2):
        drafts = kernels.propose(rows, rows + 2, held, lengths, prompts)
        expected = [
            literal([*sources, text], text, PROMPT, last)
            for (sources, text), last in zip(cases, followed, strict=True)
        ]
        assert drafts.tolist() == [
            draft[:5] + [NO_TOKEN] * (5 - len(draft)) for draft, _ in expected
        ]
        followed = [last for _, last in expected]
        for row, (sources, text) in enumerate(cases):
            text.append(sources[0][-1] if sources and sources[0] else 0)
            held[row + 2, len(text) - 1] = text[-1]
            lengths[row + 2] = len(text)


def test_the_kernels_use_no_answer_without_a_row() -> None:
    pytest.importorskip("triton", reason="no Triton for this platform")
    from modnorm.engines.drafts.match_kernels import MatchKernels  # noqa: PLC0415 - needs Triton

    table = AnswerTable(DEVICE, prompts=1, sources=2, tokens=100)
    table.add([(0, [1, 2, 3, 4])])
    held = torch.tensor([[1, 2, 3]], dtype=torch.int32, device=DEVICE)
    zero, none = (torch.tensor([one], dtype=torch.int32, device=DEVICE) for one in (0, -1))
    kernels = MatchKernels(table, sequences=1, count=2)
    length = torch.tensor([3], dtype=torch.int32, device=DEVICE)
    assert kernels.propose(zero, zero, held, length, zero).tolist() == [[4, NO_TOKEN]]
    assert kernels.propose(none, zero, held, length, zero).tolist() == [[NO_TOKEN, NO_TOKEN]]
