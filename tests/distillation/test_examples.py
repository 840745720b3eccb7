"""The choice of a student's examples, and the seeds of a harvest."""

import json

from hypothesis import given
from hypothesis import strategies as st

from modnorm.distillation.harvesting import (
    HarvestedAnswer,
    choose_examples,
    derived_seed,
    encode_examples,
    merged_lines,
)
from modnorm.search.answers import Answer
from modnorm.spec_limits import MAX_SEED
from modnorm.tasks.protocol import Message

ROWS = 4
TEXTS = st.sampled_from(["a", " a", "b", "longer", "c"])


@st.composite
def harvests(draw):
    """Draw the answers of three experts with two samples to four rows, and the votes."""
    answers = [
        HarvestedAnswer(
            Answer(
                row=row,
                completion=draw(TEXTS),
                reward=0.0,
                vote=draw(st.sampled_from(["1", "2", None])),
                correct=draw(st.booleans()),
                tokens=draw(st.integers(1, 5)),
                truncated=draw(st.booleans()),
            ),
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


def place(one):
    """Return an answer's place in a harvest: rows come in any order, experts by rank."""
    return one.rank, one.sample


def text_of(one):
    return one.answer.completion.strip()


@given(harvests(), st.integers(1, 4), st.sampled_from([None, {1, 2}]))
def test_examples_are_those_of_a_choice_that_holds_all_answers(harvest, keep, rows):
    answers, votes = harvest
    chosen = []
    for row in rows or range(ROWS):
        usable = [
            each
            for each in answers
            if each.answer.row == row and each.answer.correct and not each.answer.truncated
        ]
        best = [
            min((each for each in usable if text_of(each) == text), key=place)
            for text in set(map(text_of, usable))
        ]
        best.sort(
            key=lambda each: (each.answer.vote != votes[row], each.answer.tokens, *place(each))
        )
        chosen += best[:keep]
    assert choose_examples(answers, votes, keep=keep, rows=rows) == chosen


def make_lines(answers, votes, round_number=1):
    examples = choose_examples(answers, votes, keep=3)
    return encode_examples(examples, votes, round_number, lambda row: [Message("user", f"{row}?")])


@given(harvests(), harvests())
def test_datasets_merge_without_repeated_answers(first, second):
    earlier, later = make_lines(*first), make_lines(second[0], second[1], 2)
    merged = merged_lines(earlier, later)
    assert merged[: len(earlier)] == earlier
    assert merged_lines(merged, later) == merged
    assert merged_lines(earlier, earlier) == earlier
    answers = [
        (line["row"], line["completion"][0]["content"].strip()) for line in map(json.loads, merged)
    ]
    assert len(set(answers)) == len(answers)


def test_a_line_holds_prompt_completion_and_provenance():
    answer = Answer(3, "Größe 5", reward=1.0, vote="5", correct=True, tokens=1, truncated=False)
    harvested = HarvestedAnswer(answer, candidate=7, rank=2, sample=1)
    (text,) = make_lines([harvested], ["4"] * ROWS, round_number=2)
    assert json.loads(text) == {
        "prompt": [{"role": "user", "content": "3?"}],
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


@given(st.integers(0, MAX_SEED), st.integers(0, 1_000))
def test_seeds_fit_all_engines_and_differ_by_kind(seed, index):
    made = [derived_seed(kind, seed, index) for kind in ("harvest", "sample", "row")]
    assert all(0 <= each <= MAX_SEED for each in made)
    assert len(set(made)) == 3


def test_seeds_are_fixed():
    """A repeated job on another machine or another version gives the same answers."""
    assert derived_seed("row", 0, 0) == 988_759_122_096_763_294
