"""Every scorer on random completions: no exceptions, valid judgements."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.tasks.conformance import HOSTILE_LENGTH
from tests.tasks.test_conformance import EXAMPLES

TAGS = ["<answer>", "</answer>", "<think>", "</think>", r"\boxed{", r"\fbox", "####", "#### "]
PHRASES = ["answer is ", "final answer: ", "so ", "class ", "is $", r"\(", r"\)", "$.", "**", "\n"]
STRANGE = ["\u0664", "\u2212", "\ud800", "\x00", "\u2028", "\u00b2", "\u0131", "\t"]
NUMBERS = [
    "1", "2", "3", "44", "1,000", "007", ".", ",", "-", "+", "*", "/", "**", "(", ")", " ",
]  # fmt: skip
OPERANDS = ["0", "1", "9", "2.5", "x", "n", "e", "i", r"\pi", r"\infty", r"\frac12", "n!", "(1,3]"]
OPERATORS = ["=", "<", r"\le ", "+", "-", "*", "/", "^", "_", ",", ";", r"\pm ", r"\cup ", r"\in "]
MATHEMATICS = [
    *OPERANDS, *OPERATORS, "!", "(", ")", "[", "]", "{", "}", "|", r"\{", r"\}", r"\frac",
    r"\sqrt", r"\binom", "%", r"\sin ", r"\log", r"\ln ", r"\lfloor ", r"\rfloor", r"\lceil ",
    r"\rceil", r"\text{cm}", r"\text{ and }", r"\overline{3}", r"^\circ", r"\\", "&",
    r"\begin{pmatrix}", r"\end{pmatrix}", r"\left", r"\right", " ", "or", "$", r"\%", "pm",
]  # fmt: skip
PROGRAMS = [
    "def f(): return 1", "\n", "\n ", "n", "1", "(", ")", "[", "]", "{", "}", ":", ",",
    "'", '"""', "f'{", "lambda ", "not ", "if ", "else ", "for n in ", "class n:", "=", "\\", "#",
    "await ", "```", "```python\n", " ", "-", "**", "@", "global n", "return ", "import n", "...",
]  # fmt: skip
LETTERS = ["A", "B", "C", "D", "E", "a", "b,", "ABCDE", ", ", " ", "B,A,C,D,E", "->", ".", "\n"]
VOCABULARIES = {
    "countdown": NUMBERS,
    "gsm8k": [*NUMBERS, "$", "=", "1000"],
    "math500": MATHEMATICS,
    "mbpp": PROGRAMS,
    "olympiadbench": MATHEMATICS,
    "rocstories": LETTERS,
    "uspto50k": [*NUMBERS, "8", "10", "class 8", "category: "],
}
FRAMES = [
    ("", ""),
    ("<answer>", "</answer>"),
    (r"\boxed{", "}"),
    ("#### ", ""),
    ("the answer is ", ""),
    ("```python\n", "\n```"),
]


def mixtures(pieces, **sizes):
    return st.lists(st.sampled_from(pieces), **sizes).map("".join)


def chains():
    """Operands with an operator before each but the first."""
    steps = st.lists(st.tuples(*map(st.sampled_from, (OPERATORS, OPERANDS))), max_size=4)
    return st.builds(
        lambda first, rest: first + "".join(map("".join, rest)), st.sampled_from(OPERANDS), steps
    )


def texts(name):
    """Mixtures of all kinds, any characters, answers where they are looked for, long blocks."""
    own = VOCABULARIES[name]
    pieces = [*TAGS, *PHRASES, *STRANGE, *own]
    answers = mixtures(own, max_size=10) | mixtures([*own, *STRANGE], max_size=10)
    if own is MATHEMATICS:
        answers |= chains()
    framed = st.builds(lambda frame, text: text.join(frame), st.sampled_from(FRAMES), answers)
    sizes = st.sampled_from([480, 4000, HOSTILE_LENGTH])
    blocks = mixtures(pieces, min_size=1, max_size=6)
    long = st.builds(lambda block, size: (block * size)[:size], blocks, sizes)
    return mixtures(pieces, max_size=80) | st.text(max_size=400) | framed | long


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=40)
@given(data=st.data())
def test_any_text_is_judged_soundly(make_task, name, scorer, data):
    task = make_task(name, scorer)
    judgement = task.judge(task.parse(EXAMPLES[name][0][0]), data.draw(texts(name)))
    assert math.isfinite(judgement.reward)
    assert 0 <= judgement.reward <= 1.1
    assert judgement.vote is None or judgement.vote
    assert judgement.vote is not None or not judgement.correct
