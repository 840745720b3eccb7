"""MATH-500 and OlympiadBench: rows, rewards and votes on own problems."""

import re

import pytest

from modnorm.tasks import get_task

ANSWERS = [
    "5",
    "-3",
    "1,250",
    r"\frac{7}{12}",
    r"3\sqrt{13}",
    r"\left( 3, \frac{\pi}{2} \right)",
    "(3,4]",
    "6 - 5i",
    r"1 \pm \sqrt{19}",
    r"\{1\pm\sqrt{5},-2\}",
    "x^5 - x^4 + 1",
    r"\text{even}",
    r"\text{(C)}",
    "2516_8",
    r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}",
    r"5.4 \text{ cents}",
    r"90^\circ",
    r"(-\infty, 2) \cup (3, \infty)",
    r"x \in [-2,7]",
    "y = 2x + 3",
    r"\$18.90",
    r"\binom{2n}{n}",
    r"\lfloor \log_2 n \rfloor + 1",
    r"k \geqslant 2",
    r"f(x)=-1, f(x)=x+1",
]
NAMES = ["math500", "olympiadbench"]


def make(name, answer, scorer=None):
    task = get_task(name, scorer=scorer)
    raw = {"problem": "p", "answer": answer, "question": "q", "final_answer": [f"${answer}$"]}
    return task, task.parse(raw)


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", ANSWERS)
def test_the_reference_answer_is_right(name, answer, scorer):
    task, row = make(name, answer, scorer)
    judgement = task.judge(row, rf"so it is $\boxed{{{answer}}}$.")
    assert judgement.correct
    assert judgement.reward == 1.0
    assert task.parse(row) == row


def mutations(answer):
    """Change each digit and each letter that stands alone, one at a time."""
    for match in re.finditer(r"\d", answer):
        yield answer[: match.start()] + str((int(match[0]) + 1) % 10) + answer[match.end() :]
    for match in re.finditer(r"(?<![A-Za-z\\])[a-dj-z](?![A-Za-z])", answer):
        yield answer[: match.start()] + "w" + answer[match.end() :]


# The name on the left of `y = ...` and `k > ...` carries no value.
MUTANTS = [
    (answer, mutant)
    for answer in ANSWERS
    for mutant in mutations(answer)
    if not (mutant.startswith("w") and "=" in mutant)
    and not mutant.startswith((r"w \in", r"w \geq"))
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("answer", "mutant"), MUTANTS)
def test_a_changed_answer_is_wrong(name, answer, mutant):
    task, row = make(name, answer)
    judgement = task.judge(row, rf"so it is \boxed{{{mutant}}}.")
    assert judgement.vote is not None
    assert not judgement.correct
    assert judgement.reward == 0.0


def test_equal_answers_are_one_vote_and_the_published_scorer_splits_it():
    spellings = ["1/2", r"\frac{1}{2}", r"\frac12", "0.5"]
    for name in NAMES:
        task, row = make(name, "1/2")
        published, _ = make(name, "1/2", "reference")
        assert {task.judge(row, rf"\boxed{{{text}}}").vote for text in spellings} == {"1/2"}
        votes = [published.judge(row, rf"\boxed{{{text}}}").vote for text in spellings]
        assert votes == spellings


def test_answers_after_the_mark_count_by_default_only():
    task, row = make("olympiadbench", "7")
    published, _ = make("olympiadbench", "7", "reference")
    assert task.judge(row, "then\n#### 7").correct
    assert published.judge(row, "then\n#### 7").vote is None


def test_commas_separate_answers_if_the_row_has_several():
    task = get_task("olympiadbench")
    raw = {"question": "q", "final_answer": ["$352,146$"]}
    several, one = task.parse({**raw, "is_multiple_answer": True}), task.parse(raw)
    assert task.judge(several, "#### 146, 352").correct
    assert task.judge(one, "#### 352146").correct
    assert not task.judge(one, "#### 146, 352").correct
