"""The choice of a student's examples."""

import json
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from modnorm.distillation.examples import (
    HarvestedAnswer,
    choose_examples,
    encode_examples,
    merged_lines,
)
from modnorm.tasks.protocol import Message

ROWS = 4
TEXTS = st.sampled_from(["a", " a", "b", "longer", "c"])


@st.composite
def harvests(draw):
    """Draw the answers of three experts with two samples to four rows, and the votes."""
    answers = [
        HarvestedAnswer(
            row=row,
            completion=draw(TEXTS),
            vote=draw(st.sampled_from(["1", "2", None])),
            correct=draw(st.booleans()),
            tokens=draw(st.integers(1, 5)),
            truncated=draw(st.booleans()),
            candidate=10 * rank,
            rank=rank,
            sample=sample,
        )
        for row in range(ROWS)
        for rank in (1, 2, 3)
        for sample in (0, 1)
    ]
    votes = draw(st.lists(st.sampled_from(["1", "2", None]), min_size=ROWS, max_size=ROWS))
    return sorted(draw(st.permutations(answers)), key=place), votes


def place(answer):
    """Return an answer's place in a harvest: rows come in any order, experts by rank."""
    return answer.rank, answer.sample


@given(harvests(), st.integers(1, 4))
def test_examples_are_those_of_a_choice_that_holds_all_answers(harvest, keep):
    answers, votes = harvest
    chosen = []
    for row in range(ROWS):
        usable = [
            each for each in answers if each.row == row and each.correct and not each.truncated
        ]
        texts = {each.completion.strip() for each in usable}
        best = [
            min((each for each in usable if each.completion.strip() == text), key=place)
            for text in texts
        ]
        best.sort(key=lambda each: (each.vote != votes[row], each.tokens, *place(each)))
        chosen += best[:keep]
    examples = choose_examples(answers, votes, round_number=1, keep=keep)
    assert [example.answer for example in examples] == chosen


@given(harvests())
def test_other_rows_can_be_left_out(harvest):
    answers, votes = harvest
    whole = choose_examples(answers, votes, round_number=1, keep=3)
    some = choose_examples(answers, votes, round_number=1, keep=3, rows={1, 2})
    assert some == tuple(each for each in whole if each.answer.row in {1, 2})


def make_lines(answers, votes, round_number=1):
    examples = choose_examples(answers, votes, round_number=round_number, keep=3)
    return encode_examples(examples, lambda row: [Message("user", f"Say {row}.")])


@given(harvests(), harvests())
def test_datasets_merge_without_repeated_answers(first, second):
    earlier, later = make_lines(*first), make_lines(second[0], second[1], round_number=2)
    merged = merged_lines(earlier, later)
    assert merged[: len(earlier)] == earlier
    assert merged_lines(merged, later) == merged
    assert merged_lines(earlier, earlier) == earlier
    answers = [
        (line["row"], line["completion"][0]["content"].strip()) for line in map(json.loads, merged)
    ]
    assert len(set(answers)) == len(answers)


def test_a_line_holds_prompt_completion_and_provenance():
    numbers = count(1)
    answer = HarvestedAnswer(
        row=3,
        completion="Größe 5",
        vote="5",
        correct=True,
        tokens=next(numbers),
        truncated=False,
        candidate=7,
        rank=2,
        sample=1,
    )
    (text,) = make_lines([answer], ["4"] * ROWS, round_number=2)
    assert json.loads(text) == {
        "prompt": [{"role": "user", "content": "Say 3."}],
        "completion": [{"role": "assistant", "content": "Größe 5"}],
        "row": 3,
        "answer": "5",
        "vote": "4",
        "agrees": False,
        "tokens": 1,
        "round": 2,
        "expert": {"candidate": 7, "rank": 2, "sample": 1},
    }
    assert "\n" not in text
