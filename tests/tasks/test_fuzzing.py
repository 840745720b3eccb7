"""Every scorer on random completions: no exceptions, valid judgements."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.tasks.conformance import HOSTILE_LENGTH
from tests.tasks.test_conformance import EXAMPLES

TAGS = ["<answer>", "</answer>", "<think>", "</think>", r"\boxed{", r"\fbox", "####", "#### "]
PHRASES = ["answer is ", "final answer: ", "so ", "class ", "is $", r"\(", r"\)", "$.", "**", "\n"]
STRANGE = ["\u0664", "\u2212", "\ud800", "\x00", "\u2028", "\u00b2", "\u0131", "\t", "...", "@"]
NUMBERS = ["1", "2", "44", "1,000", "007", "2.5", ".", ",", "-", "+", "*", "/", "(", ")", " ", "="]
MATHEMATICS = [
    "x", "n!", "e", "i", r"\pi", r"\infty", r"\frac12", "(1,3]", "<", r"\le ", "^", "_", ";",
    r"\pm ", r"\cup ", r"\in ", "[", "]", "{", "}", "|", r"\{", r"\}", r"\frac", r"\sqrt", "or",
    r"\binom", "%", r"\sin ", r"\log", r"\lfloor ", r"\rfloor", r"\text{cm}", r"\text{ and }",
    r"\overline{3}", r"^\circ", r"\\", "&", r"\begin{pmatrix}", r"\end{pmatrix}", r"\left", "$",
]  # fmt: skip
PROGRAMS = [
    "def f(): return 1", "n", ":", "'", '"""', "f'{", "lambda ", "if ", "for n in ", "class n:",
    "#", "await ", "```", "```python\n", "global n", "return ", "import n",
]  # fmt: skip
LETTERS = ["A", "B", "a", "b,", "ABCDE", "B,A,C,D,E", "->", "class 8", "category: ", "10"]
PIECES = [*TAGS, *PHRASES, *STRANGE, *NUMBERS, *MATHEMATICS, *PROGRAMS, *LETTERS]
FRAMES = [
    *(("", ""), ("<answer>", "</answer>"), (r"\boxed{", "}"), ("#### ", "")),
    *(("the answer is ", ""), ("```python\n", "\n```")),
]


def mixtures(pieces, **sizes):
    return st.lists(st.sampled_from(pieces), **sizes).map("".join)


ANSWERS = st.one_of(
    *(mixtures([*NUMBERS, *own], max_size=10) for own in (MATHEMATICS, PROGRAMS, LETTERS, STRANGE))
)
TEXTS = st.one_of(
    mixtures(PIECES, max_size=80),
    st.text(max_size=400),
    st.builds(lambda frame, answer: answer.join(frame), st.sampled_from(FRAMES), ANSWERS),
    st.builds(
        lambda block, size: (block * size)[:size],
        mixtures(PIECES, min_size=1, max_size=6),
        st.sampled_from([480, 4000, HOSTILE_LENGTH]),
    ),
)


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=40)
@given(text=TEXTS)
def test_any_text_is_judged_soundly(make_task, name, scorer, text):
    task = make_task(name, scorer)
    judgement = task.judge(task.parse(EXAMPLES[name][0][0]), text)
    assert math.isfinite(judgement.reward)
    assert 0 <= judgement.reward <= 1.1
    assert judgement.vote is None or judgement.vote
    assert judgement.vote is not None or not judgement.correct
