"""The texts of a search are a run's answers, row after row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_search.recorded_texts import join

ANSWERS = st.integers(1, 50).flatmap(
    lambda rows: st.lists(
        st.lists(st.lists(st.integers(0, 1999), max_size=9), min_size=rows, max_size=rows),
        min_size=1,
        max_size=3,
    )
)


@given(ANSWERS, st.integers(1, 40))
def test_a_text_is_the_answer_to_its_row_and_then_those_of_named_rows(
    answers: list[list[list[int]]], tokens: int
) -> None:
    texts = join(answers, tokens)
    assert texts.shape == (len(answers), len(answers[0]), tokens)
    for candidate, given_answers in enumerate(answers):
        for row, text in enumerate(texts[candidate]):
            names = np.flatnonzero(text >= 2000)
            parts = np.split(text, names)
            asked = [row, *(int(part[0]) - 2000 for part in parts[1:])]
            said = [parts[0], *(part[1:] for part in parts[1:])]
            for number, words in zip(asked[:-1], said[:-1], strict=True):
                assert words.tolist() == given_answers[number]
            assert said[-1].tolist() == given_answers[asked[-1]][: len(said[-1])]
