"""Every scorer on random completions: no exceptions, valid judgements."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.tasks.conformance import HOSTILE_LENGTH, MAX_SECONDS
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
CASES = [(name, scorer) for name in EXAMPLES for scorer in (None, "reference")]


def mixtures(pieces, **sizes):
    return st.lists(st.sampled_from(pieces), **sizes).map("".join)


def chains():
    """Operands with an operator before each but the first."""
    steps = st.lists(st.tuples(*map(st.sampled_from, (OPERATORS, OPERANDS))), max_size=4)
    return st.builds(
        lambda first, rest: first + "".join(map("".join, rest)), st.sampled_from(OPERANDS), steps
    )


def texts(name):
    """Mixtures of all kinds, any characters, and answers where the scorer looks for them."""
    own = VOCABULARIES[name]
    soups = mixtures([*TAGS, *PHRASES, *STRANGE, *own], max_size=80)
    answers = mixtures(own, max_size=10) | mixtures([*own, *STRANGE], max_size=10)
    if own is MATHEMATICS:
        answers |= chains()
    framed = st.builds(lambda frame, text: text.join(frame), st.sampled_from(FRAMES), answers)
    return soups | st.text(max_size=400) | framed


def long_texts(name):
    """Blocks many times over, up to the end of a long text or all of it."""
    blocks = mixtures([*TAGS, *PHRASES, *STRANGE, *VOCABULARIES[name]], min_size=1, max_size=6)

    def build(frame, block, size):
        length = size - sum(map(len, frame))
        return (block * length)[:length].join(frame).rjust(HOSTILE_LENGTH)

    sizes = st.sampled_from([480, 4000, HOSTILE_LENGTH])
    return st.builds(build, st.sampled_from(FRAMES), blocks, sizes)


def check_judgement(task, raw, text):
    judgement = task.judge(task.parse(raw), text)
    assert math.isfinite(judgement.reward)
    assert 0 <= judgement.reward <= 1.1
    assert judgement.vote is None or judgement.vote
    assert judgement.vote is not None or not judgement.correct


@pytest.mark.parametrize(("name", "scorer"), CASES)
@settings(max_examples=100)
@given(data=st.data())
def test_any_text_is_judged_soundly(make_task, name, scorer, data):
    check_judgement(make_task(name, scorer), EXAMPLES[name][0][0], data.draw(texts(name)))


@pytest.mark.parametrize(("name", "scorer"), CASES)
@settings(max_examples=25)
@given(data=st.data())
def test_long_texts_are_judged_soundly(make_task, name, scorer, data):
    text = data.draw(long_texts(name))
    assert len(text) == HOSTILE_LENGTH
    task, began = make_task(name, scorer), time.thread_time()
    check_judgement(task, EXAMPLES[name][0][0], text)
    assert time.thread_time() - began <= MAX_SECONDS
