import re

from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.columns import last_answer, last_block, stated_answer

PIECES = ["<answer>", "</answer>", "\n", "```", "python", "x", " "]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(TEXTS)
def test_the_last_answer_is_that_of_the_regular_expression(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert last_answer(text) == (found[-1] if found else None)


@given(TEXTS)
def test_the_last_fence_is_that_of_the_regular_expression(text):
    found = re.findall(r"```(.*?)```", text, re.DOTALL)
    assert last_block(text, "```", "```") == (found[-1] if found else None)


@given(TEXTS)
def test_a_stated_answer_holds_no_tag(text):
    stated, last = stated_answer(text), last_answer(text)
    assert (stated is None) == (last is None)
    assert stated is None or ("<answer>" not in stated and (last or "").endswith(stated))
