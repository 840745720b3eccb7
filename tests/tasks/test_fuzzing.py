"""Every scorer on what a model might write: never an exception, sound judgements."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = {
    "countdown": {"numbers": [44, 19, 35], "target": 98},
    "gsm8k": {"question": "q", "answer": "#### 72"},
    "math500": {"problem": "p", "answer": r"\frac{1}{2}"},
    "mbpp": {"text": "t", "test_list": ["assert double(2) == 4"]},
    "olympiadbench": {"question": "q", "final_answer": ["1,3"], "is_multiple_answer": True},
    "rocstories": {
        "title": "t",
        "shuffled_sentences": list("vwxyz"),
        "gold_order": [1, 0, 2, 3, 4],
    },
    "uspto50k": {"rxn_smiles": "C>>C", "class": 7},
}
PIECES = [
    "<answer>",
    "</answer>",
    "<think>",
    "</think>",
    "\n",
    " ",
    r"\boxed{",
    "}",
    "{",
    "####",
    "#### ",
    "answer is ",
    "so ",
    "= ",
    "$",
    "\\(",
    "\\)",
    "**",
    "1",
    "44",
    "+19",
    "+35",
    "1,000",
    "-",
    "/",
    "(",
    ")",
    r"\frac",
    r"\sqrt",
    "^",
    "_",
    "A,",
    "B",
    "C D E",
    "class ",
    "7",
    "```python\n",
    "```",
    "def double(n): return 2 * n",
    "\u0664",
    "\ud800",
    "\x00",
    "\u2028",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=80).map("".join) | st.text(max_size=400)


@pytest.mark.parametrize("scorer", [None, "reference"])
@pytest.mark.parametrize("name", EXAMPLES)
@settings(deadline=None, max_examples=150)
@given(text=TEXTS)
def test_any_text_is_judged_soundly(make_task, name, scorer, text):
    task = make_task(name, scorer)
    row = task.parse(EXAMPLES[name])
    judgement = task.judge(row, text)
    assert math.isfinite(judgement.reward)
    assert 0 <= judgement.reward <= 1.1
    assert judgement.vote is None or judgement.vote
    assert judgement.vote is not None or not judgement.correct
