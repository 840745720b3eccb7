"""The table of answers: bounded, the oldest leave first."""

from collections import deque

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.engines.drafts.matching import AnswerTable

SOURCES, TOKENS, PROMPTS = 3, 50, 4


def held(table: AnswerTable) -> list[list[list[int]]]:
    """Return the answers of each row, the latest first."""
    ring, spans = table.tokens.tolist(), table.spans.tolist()
    return [[ring[first : first + size] for first, size in row if size] for row in spans]


def make() -> AnswerTable:
    return AnswerTable(torch.device("cpu"), prompts=PROMPTS, sources=SOURCES, tokens=TOKENS)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, PROMPTS - 1), st.integers(1, 30)), max_size=5),
        max_size=12,
    )
)
def test_a_row_has_its_latest_answers_as_far_as_they_fit(
    batches: list[list[tuple[int, int]]],
) -> None:
    table, all_answers, number = make(), list[tuple[int, list[int]]](), 0
    for batch in batches:
        answers = []
        for row, size in batch:
            number += 1
            answers.append((row, [number] * size))
        table.add(answers)
        all_answers += answers
        found = held(table)
        kept = {row: deque(maxlen=SOURCES) for row in range(PROMPTS)}  # type: dict[int, deque[list[int]]]
        for row, answer in all_answers:
            kept[row].appendleft(answer)
        for row in range(PROMPTS):
            # The oldest may have made room, no other.
            assert found[row] == list(kept[row])[: len(found[row])]
        if all_answers:
            last = all_answers[-1]
            assert found[last[0]][0] == last[1]


def test_an_answer_longer_than_the_ring_is_cut() -> None:
    table = make()
    table.add([(0, np.arange(2 * TOKENS, dtype=np.int32))])
    assert held(table)[0] == [list(range(TOKENS))]
