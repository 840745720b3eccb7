import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks import get_task
from modnorm.tasks.countdown import format_score
from modnorm.tasks.row_loading import prompt_question

TASK = get_task("countdown")
ROW = TASK.parse({"numbers": [44, 19, 35], "target": "98", "id": 0, "context": "", "solution": ""})


@pytest.mark.parametrize(
    ("completion", "reward", "vote"),
    [
        ("so </think>\n<answer>44 + 19 + 35</answer>", 1.1, "98"),
        ("<think> so </think>\n<answer> 44 + 19 + 35 </answer>", 1.1, "98"),
        ("<answer>44+19+35</answer>", 1.05, "98"),
        ("so </think> <answer>44+19+35</answer>", 1.06, "98"),
        ("so </think>\n<answer>44+19+35</answer> done", 1.06, "98"),
        ("so </think>\n<answer>44+19+35</answer>\n", 1.1, "98"),
        ("so </think>\n<answer>44+19-35</answer>", 0.1, "28"),
        ("so </think>\n<answer>44/19+35</answer>", 0.1, str(44 / 19 + 35)),
        ("so </think>", 0.01, None),
        ("the answer is 98", 0.0, None),
        ("", 0.0, None),
        ("<answer>\n44+19+35\n</answer>", 1.05, "98"),
        # The last block counts.
        ("<answer>1</answer><answer>44+19+35</answer>", 1.05, "98"),
        ("<answer>44+19+35</answer><answer>1</answer>", 0.05, None),
        # It begins at its own opening tag, not at an earlier mention of one.
        ("in <answer> tags. </think>\n<answer>44+19+35</answer>", 1.1, "98"),
        # Every number exactly once, and nothing else.
        ("<answer>44+19+35+0</answer>", 0.05, None),
        ("<answer>44+54</answer>", 0.05, None),
        ("<answer>44+44+19+35</answer>", 0.05, None),
        ("<answer>98</answer>", 0.05, None),
        ("<answer>44+19+35=98</answer>", 1.05, "98"),
        ("<answer>x=44+19+35</answer>", 0.05, None),
        # Not legal arithmetic.
        ("<answer>44**19**35</answer>", 0.05, None),
        ("<answer>44//19+35</answer>", 0.05, None),
        ("<answer>044+19+35</answer>", 0.05, None),
        ("<answer>\u0664\u0664+19+35</answer>", 0.05, None),
        ("<answer>44+(19-19)/35</answer>", 0.05, None),
        ("<answer>44 19 35</answer>", 0.05, None),
        ("<answer>--44+19+35</answer>", 1.05, "98"),
    ],
)
def test_reward_and_vote(completion, reward, vote):
    judgement = TASK.judge(ROW, completion)
    assert judgement.reward == pytest.approx(reward, abs=1e-12)
    assert judgement.vote == vote
    assert judgement.correct == (vote == "98")


@pytest.mark.parametrize(
    ("answer", "vote"),
    [
        # One side uses all numbers, and all sides are equal.
        ("44 + 19 + 35 = 98", "98"),
        ("98 = 44 + 19 + 35", "98"),
        ("44 + 19 + 35 = 98.0", "98"),
        ("44 + 19 + 35 = 98.", "98"),
        ("44 + 19 + 35 == 98", "98"),
        ("44 + 19 + 35 \u2248 98", "98"),
        ("44 + 19 + 35 => 98", "98"),
        (r"44 + 19 + 35 = \boxed{98}", "98"),
        (r"\boxed{44 + 19 + 35 = 98}", "98"),
        ("44 + 19 + 35 = **98**", "98"),
        ("**44 + 19 + 35** = 98", "98"),
        ("44 + 19 + 35 => 99", None),
        ("44**19**35", None),
        ("44 + 19 + 35\n= 98", "98"),
        ("44 + 19 + 35 = 63 + 35 = 98", "98"),
        ("44 + 19 + 35 = 35 + (44 + 19)", "98"),
        ("44 + 19 - 35 = 28", "28"),
        ("44 - 19 / 35 = 43.457142857", str(44 - 19 / 35)),
        # A false or unfinished equation, or one without all numbers.
        ("44 + 19 + 35 = 99", None),
        ("44 + 19 + 35 = 97", None),
        ("44 + 19 - 35 = 98", None),
        ("98 = 98", None),
        ("44 + 19 = 63", None),
        ("44 + 19 = 70", None),
        ("44 + 19 = 63 + 35 = 98", None),
        ("44 + 19 + 35 = 98 = 99", None),
        ("44 + 19 + 35 =", None),
        ("= 44 + 19 + 35", None),
        ("44 + 19 + 35 98", None),
        ("44.0 + 19 + 35", None),
        ("x = 44 + 19 + 35", None),
        ("The equation is 44 + 19 + 35 = 98", None),
        # Notation.
        ("44 \u00d7 19 \u2212 35 = 801", "801"),
        ("44 x 19 - 35", "801"),
        ("44X19-35", "801"),
        ("44 \u00b7 19 - 35", "801"),
        (r"44 \times 19 - 35", "801"),
        (r"44 \cdot 19 - 35", "801"),
        (r"44 \ast 19 - 35", "801"),
        ("44 \u00f7 (35 - 19)", "2.75"),
        (r"44 \div (35 - 19)", "2.75"),
        ("44 \u2215 (35 - 19)", "2.75"),
        ("44 \u2797 (35 \u2796 19)", "2.75"),
        ("44 \u2219 19 \u2010 35", "801"),
        (r"\frac{44}{35 - 19}", "2.75"),
        (r"44 \div \frac{35}{19}", str(44 / (35 / 19))),
        (r"\dfrac{44 + \tfrac{19}{1}}{35}", None),
        (r"\frac{\frac{44}{19}}{35}", str(44 / 19 / 35)),
        ("[44 + 19] + {35}", "98"),
        (r"\left[ \left( 44 + 19 \right) + 35 \right] = 98", "98"),
        (r"\{44 + 19\} + 35", "98"),
        ("$44 + 19 + 35 = 98$", "98"),
        ("$$44 + 19 + 35$$ = $98$", "98"),
        (r"\(44 + 19 + 35\)", "98"),
        (r"\[44 + 19 + 35 = 98\]", "98"),
        (r"$\boxed{44 + 19 + 35 = 98}$", "98"),
        (r"\boxed{44 + 19 + 35}", "98"),
        ("**44 + 19 + 35 = 98**", "98"),
        ("`44+19+35`", "98"),
        (r"44\,+\;19 + 35", "98"),
        ("44\u2009+\u00a019 + 35", "98"),
        ("\uff14\uff14\uff0b19\uff0b35\uff1d98", "98"),
        # Other operations.
        ("44^19 + 35", None),
        (r"\sqrt{44} + 19 + 35", None),
        ("44! + 19 + 35", None),
        ("(44)(19) + 35", None),
        (r"\frac{44}19 + 35", None),
        (r"\frac{44}{19", None),
        ("44\u00b2 + 19 + 35", None),
    ],
)
def test_an_equation_counts_if_it_is_true_and_a_side_uses_all_numbers(answer, vote):
    judgement = TASK.judge(ROW, f"<answer>{answer}</answer>")
    assert judgement.vote == vote
    assert judgement.reward == pytest.approx(1.05 if vote == "98" else 0.05)
    assert PUBLISHED.judge(ROW, f"<answer>{answer}</answer>").vote is None


def test_a_fractional_target_is_met_within_tolerance():
    row = TASK.parse({"numbers": [98, 47, 47, 52], "target": "27.4"})
    assert "equals 27.4." in TASK.messages(row)[1].content
    judgement = TASK.judge(row, "<answer>98 / (47 - 52) + 47</answer>")
    assert judgement.correct
    assert judgement.reward == pytest.approx(1.05)


TAGS = ["<think>", "</think>", "\n", "<answer>", "</answer>", "44", "+", "19 + 35", " ", "x"]
TEXTS = st.lists(st.sampled_from(TAGS), max_size=14).map("".join)


@given(TEXTS)
def test_the_format_score_is_that_of_the_regular_expressions(text):
    whole = f"<think>{text}"
    if re.match(r"^<think>.*?</think>\n<answer>.*?</answer>$", whole, re.DOTALL):
        expected = 1.0
    else:
        expected = 0.1 * bool(re.search(r"<think>.*?</think>", whole, re.DOTALL))
        expected += 0.5 * bool(re.search(r"<answer>.*?</answer>", whole, re.DOTALL))
    assert format_score(text) == expected


@pytest.mark.parametrize(
    ("target", "number", "shown"),
    [
        *((98.0, 98, "98"), ("98.0", 98, "98"), (" 98", 98, "98"), (Decimal("98.00"), 98, "98")),
        *(("27.40", 27.4, "27.4"), (Decimal("27.40"), 27.4, "27.4"), (-0.0, 0, "0")),
        (1e-5, 1e-5, "0.00001"),
    ],
)
def test_a_target_has_one_form_in_row_and_prompt(target, number, shown):
    row = TASK.parse({"numbers": [44.0, Decimal(19)], "target": target})
    assert json.dumps(row) == json.dumps({"numbers": [44, 19], "target": number})
    prompt = TASK.messages(row)[1].content
    assert f"numbers [44, 19], create an equation that equals {shown}. " in prompt
    assert prompt_question(TASK, prompt) == row


PUBLISHED = get_task("countdown", scorer="reference")


@pytest.mark.parametrize(
    ("completion", "reward", "vote"),
    [
        ("<answer>44+19+35</answer>", 1.05, "98"),
        ("<answer>44+19+35\n</answer>", 1.05, "98"),
        # A newline in front of the expression costs the reward, not the vote.
        ("<answer>\n44+19+35\n</answer>", 0.05, "98"),
        ("in <answer> tags. </think>\n<answer>44+19+35</answer>", 0.1, None),
        ("<answer>44//19+35</answer>", 0.05, "37"),
        ("<answer>-44//19+35</answer>", 0.05, "32"),
        ("<answer>44**19**35</answer>", 0.05, None),
        ("<answer>(-44)**(19/35)</answer>", 0.05, None),
        ("<answer>(-19)**(44/35)</answer>", 0.05, None),
    ],
)
def test_the_published_scorer_keeps_its_errors(completion, reward, vote):
    judgement = PUBLISHED.judge(ROW, completion)
    assert judgement.reward == pytest.approx(reward, abs=1e-12)
    assert judgement.vote == vote


def test_the_published_scorer_gives_no_vote_to_numbers_over_1000():
    row = PUBLISHED.parse({"numbers": [1001, 2], "target": 999})
    judgement = PUBLISHED.judge(row, "<answer>1001-2</answer>")
    assert (judgement.reward, judgement.vote) == (1.05, None)


@pytest.mark.parametrize(
    ("numbers", "expression", "vote"),
    [
        ([2, 3], "2**3", "8"),
        ([2, 3], "-2**3", "-8"),
        ([2, 3, 2], "2**3**2", "512"),
        ([2, 3], "2**-3", "0.125"),
        ([2, 1], "-(2**-1)", "-0.5"),
        ([1, 1000], "1**1000", "1"),
        ([0, 1], "0**-1", None),
        ([10**9, 10**9], "1000000000**1000000000", None),
    ],
)
def test_published_powers_are_pythons_and_bounded(numbers, expression, vote):
    row = PUBLISHED.parse({"numbers": numbers, "target": 0})
    expected = None if max(numbers) > 1000 else vote
    assert PUBLISHED.judge(row, f"<answer>{expression}</answer>").vote == expected
