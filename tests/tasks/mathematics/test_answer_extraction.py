import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks.mathematics.answer_extraction import MAX_ANSWER, final_answer


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{1} then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\boxed{" + "x" * 600 + "}", None),
        (r"\boxed{}", None),
        (r"#### $\boxed{1}$ and $\boxed{3}$.", "1, 3"),
        (r"\boxed{1}, \boxed{3}, or \boxed{5}", "1, 3, 5"),
        (r"\boxed{1} \text{ or } \boxed{3}", "1, 3"),
        (r"\boxed{3/2} or \boxed{1\frac12}", r"1\frac12"),
        (r"\boxed{2} \boxed{3}", "3"),
        (r"\boxed{2} and so \boxed{3}", "3"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{5}, as asked in \boxed{}", "5"),
        ("\\boxed{9}\n\n#### Verification\nIt is 3 * 3.", "9"),
        ("\\boxed{8}\n#### 9\n#### Check of this:\nIt is 3 * 3.", "9"),
        ("#### Step 3: Conclusion\nThe answer is 9", "9"),
        ("#### Evelyn\nShe was faster.", "Evelyn"),
        ("\\boxed{8}\n#### Evelyn", "Evelyn"),
        ("#### Therefore, the answer is 12.", "12"),
        ("#### So x = 12", "x = 12"),
        ("#### 12", "12"),
        ("####\n12", "12"),
        ("#### **12**.", "12"),
        (r"#### \boxed{12}", "12"),
        (r"#### The answer is \boxed{12}", "12"),
        ("#### Final answer: 12", "12"),
        ("#### Final Answer:\n\n12", "12"),
        ("#### **The final answer is**\n12", "12"),
        ("####\n\\[\n12\n\\]", "12"),
        ("#### $$\n12\n$$", "12"),
        ("#### 12 ####", "12"),
        ("#### `12`", "12"),
        ("#### = 12", "12"),
        ("#### $12$. This holds.", "$12$"),
        ("#### 2n. This holds.", "2n"),
        ("#### Dr. Who", "Dr. Who"),
        ("**Answer**: 12", "12"),
        ("The final answer is $12$. I hope it is correct.", "$12$"),
        ("#### Step 1\nso\n#### 5", "5"),
        (r"#### Step 1: add \boxed{9}", "9"),
        (r"#### Step 1" + "\n" + r"so \boxed{9}.", "9"),
        ("#### 1. Add them\nso\n#### 2. Halve it.\nThe answer is 5", "5"),
        ("#### 1. Add 2 and 3\n#### 2. $5$", "$5$"),
        ("#### 5. This holds.\nIndeed.", "5"),
        ("#### Part 2: add 3\nThe answer is 9", "9"),
        ("#### 5 and then #### 6", "6"),
        ("The answer is 5.", "5"),
        ("The final answer is: $x^2$", "$x^2$"),
        ("Answer: 5\nanswer: 6\nbye", "6"),
        ("nothing at all", None),
        ("the answer", None),
        ("", None),
    ],
)
def test_the_last_stated_answer_is_found(completion, answer):
    assert final_answer(completion) == answer


@pytest.mark.parametrize(
    "piece",
    [
        r"\boxed{",
        r"\boxed ",
        "{",
        "}",
        "####",
        "####\n",
        "#",
        "answer ",
        "answer is ",
        "answer:",
        "\n",
        " ",
        "\\",
    ],
)
def test_repetition_costs_no_more_than_its_length(piece):
    text = (piece * 10_000)[:10_000]
    answer = final_answer(text)
    assert answer is None or len(answer) <= MAX_ANSWER


PIECES = [r"\boxed{", "}", "{", "####", "\n", "answer is", ":", "5", " ", "**", ".", "$", "\\"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text())
def test_extraction_never_raises(text):
    answer = final_answer(text)
    assert answer is None or answer
