import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks import get_task
from modnorm.tasks.gsm8k import WINDOW, Gsm8k, final_number, published_readings

TASK = get_task("gsm8k")
PUBLISHED = get_task("gsm8k", scorer="reference")
ROW = TASK.parse({"question": "How many?", "answer": "500 + 500 = 1,000\n#### 1,000"})


def test_a_row_keeps_the_canonical_answer_and_parses_to_itself():
    assert ROW == {"question": "How many?", "answer": "1000"}
    assert TASK.parse(ROW) == ROW


@pytest.mark.parametrize(
    ("completion", "vote"),
    [
        ("#### 18", "18"),
        ("#### 18.", "18"),
        ("#### 18.00", "18"),
        ("####18", "18"),
        ("#### $1,000", "1000"),
        ("#### -$5", "-5"),
        ("#### **72** pages, as 9 * 8 = 72", "72"),
        ("#### \\boxed{18}, as 6 * 3 = 18", "18"),
        (r"#### \$18 (that is 6 * 3)", "18"),
        (r"#### \(18\), as 6 * 3", "18"),
        ("#### 20 / 4 = 5", "5"),
        ("#### $5 + $3 = $8 in 2 days", "8"),
        ("#### -3 - 2 \u00d7 (1 + 1) = -7", "-7"),
        ("#### 15 = 7 * 2", "15"),
        ("#### 20 - 5", "15"),
        ("#### 10 - 12", None),
        ("#### 20 / 4 = ", "5"),
        ("#### 18 (= 9 * 2)", "18"),
        ("#### -0", "0"),
        ("#### 007", "7"),
        ("#### .50", "0.5"),
        ("#### \u22123", "-3"),
        ("#### 5 and then #### 6", "6"),
        (r"\boxed{$9{,}500}", "9500"),
        (r"#### $\boxed{1{,}234}$", "1234"),
        (r"\boxed{\text{Total} = 18 \text{ dollars}}", "18"),
        ("#### \u00a318 (9 eggs at \u00a32 each)", "18"),
        ("#### The answer is 18.\n9 * 2 = 18 and 3 + 4 = 7", "18"),
        ("#### 18. He sold them all.\nCheck: 3 * 3 = 9", "18"),
        ("#### 3 1/2", "3.5"),
        ("#### $1.5 million", "1500000"),
        ("#### 5 apples + 3 pears = 8 fruits", "8"),
        ("#### 2 hours = 120 minutes", "120"),
        ("#### Janet makes $18 every day", "18"),
        ("#### The total is **18** dollars over 3 days", "18"),
        ("#### $20/hour", "20"),
        ("#### 6:00 p.m.", "6"),
        ("#### minus 5", "-5"),
        ("#### 18!", "18"),
        ("#### 18 ####", "18"),
        # Headings are no answers.
        ("#### 1. Find the cost\n3 * 2 = 6\n#### 2. Add 5.\nThe answer is 42. Check 3.", "42"),
        ("#### 1. Find the cost.\n3 * 2 = 6", "6"),
        ("#### 1. 5 * 3 = 15\n#### 2. 15 + 3 = 18", "18"),
        ("#### Step 1: 5 * 3 = 15\n#### Step 2: total = 18", "18"),
        ("#### Cost of 3 apples\n3 * 2 = 6 dollars", "6"),
        ("#### Part A: 3 eggs\nThe answer is 42.", "42"),
        ("#### (1) Find the cost\nThe answer is 42.", "42"),
        ("The answer is 42.\n#### 1. Find the", "42"),
        ("The answer is the total of 5 and 7, which is 12", "12"),
        ("Let me find the answer: first 5*3=15, then 15+3 = 18.", "18"),
        ("#### So she makes 18 dollars (check: 18 - 9 = 9)", "18"),
        ("#### 18, as 6 * 3 = 18, 2 * 9 = 18", "18"),
        ("#### Tom (a farmer) needs 7 more apples to have 10", "7"),
        # Two readings are none.
        ("#### The cost is $18 and the change is $2", None),
        ("#### 1h30", None),
        ("#### 5'6\"", None),
        ("#### 3 thousand 5 hundred", None),
        ("#### 18 \u00b1 2", None),
        ("#### 5 + 3i", None),
        ("#### John: 18, Mary: 20", None),
        ("#### 3 thousand five hundred", None),
        ("#### 5 hundred twenty", None),
        ("#### 3 tenths", None),
        ("#### x = 18, y = 3", None),
        ("#### 3 people get 18 each", None),
        ("#### 18 of the 20", None),
        (r"#### \sqrt{16}", None),
        ("She has 3 eggs.\n#### eighteen", None),
        ("She has 3 eggs.\n#### Two hundred and fifty dollars", None),
        ("So it is 3 thousand five hundred", None),
        ("#### 1\u066c234", "1234"),
        ("#### 1\u066b5", "1.5"),
        ("#### 1\u02bc234", "1234"),
        ("#### 1 , 234", None),
        ("#### - 5", "-5"),
        ("#### $5 bn", "5000000000"),
        ("#### 10:30", None),
        ("#### 3:1", None),
        ("#### 5/12/2020", None),
        ("#### 10-12", None),
        ("#### 10\u201312", None),
        ("#### 10 to 12", None),
        ("#### 5 or 6", None),
        ("#### 3 out of 4", None),
        ("#### 5 feet 6 inches", None),
        ("#### 2 weeks and 3 days", None),
        ("#### 3,50", None),
        ("#### 1.2.3", None),
        ("#### 3x + 2", None),
        (r"\boxed{18, 20}", None),
        (r"\boxed{1}, \boxed{3}", None),
        ("The answer is 5 more than 3, so 8", None),
        # Without a stated number the last one counts.
        ("So she pays 9{,}500 dollars.", "9500"),
        ("It is 3\u00bd", "3.5"),
        ("She arrives at 10:30", None),
        ("#### none", None),
        ("She has 3 eggs.\n#### unknown", "3"),
        ("#### unknown, perhaps 12", "12"),
        ("It is 1,000.", "1000"),
        ("8 - 3 = 5", "5"),
        ("between 10-12", "12"),
        ("(4)-3", "3"),
        ("1, 2,3", "3"),
        ("1234,567", "567"),
        ("a total of 3.50 dollars", "3.5"),
        ("no number", None),
        ("", None),
        ("\u0664", None),
    ],
)
def test_the_final_answer_is_canonical(completion, vote):
    assert final_number(completion) == vote


@pytest.mark.parametrize(
    ("question", "completion", "vote"),
    [
        ("How many dozen eggs does she need?", "#### 4 dozen", "4"),
        ("How many more dozens are left?", r"\boxed{4\text{ dozen eggs}}", "4"),
        ("How many billions of miles is that?", "So it is 26 billion miles.", "26"),
        ("How much is left, in millions of dollars?", "#### $60 million", "60"),
        ("How much is left, in millions of dollars?", "#### $60 thousand", "60000"),
        ("How many eggs are in 2 dozen?", "#### 2 dozen", "24"),
        ("She has 3 million dollars. How much is left?", "#### 2 million", "2000000"),
    ],
)
def test_a_scale_word_that_the_question_asks_for_is_a_unit(question, completion, vote):
    assert TASK.judge({"question": question, "answer": "1"}, completion).vote == vote


def test_an_answer_to_a_prompt_without_a_row_has_a_vote():
    assert Gsm8k().vote({}, "#### 4 dozen") == "48"


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("1/2", "0.5"),
        ("1/3", "1/3"),
        ("3 1/2", "3.5"),
        ("$1.5 million", "1500000"),
        (r"1{,}000.", "1000"),
        ("-7", "-7"),
    ],
)
def test_a_gold_answer_is_stored_exactly(gold, answer):
    row = TASK.parse({"question": "How many?", "answer": f"1 + 1 = 2\n#### {gold}"})
    assert row["answer"] == answer
    assert TASK.parse(row) == row
    assert TASK.judge(row, f"#### {gold}").correct


def test_the_published_scorer_reads_only_the_end_of_the_completion():
    assert published_readings("#### 5" + " " * WINDOW) == (None, None)
    assert published_readings("#### 5" + " " * (WINDOW - 6)) == ("5", "5")
    judgement = PUBLISHED.judge(ROW, "#### 1000" + "x" * 500)
    assert (judgement.reward, judgement.vote, judgement.correct) == (0.0, None, False)


@given(st.integers(-(10**9), 10**9))
def test_every_way_to_write_an_integer_is_one_vote(number):
    forms = [f"{number}", f"{number:,}", f"{number}.", f"{number:,}.00", f"${number}"]
    assert {final_number(f"#### {form}") for form in forms} == {str(number)}
    assert {final_number(f"so {form}") for form in forms} == {str(number)}


@pytest.mark.parametrize(
    ("completion", "reward", "vote", "correct"),
    [
        ("#### 1,000", 1.0, "1000", True),
        ("#### 1000.", 0.0, "1000.", False),
        ("#### $1000", 1.0, "1000", True),
        ("so 1000", 1.0, "1000", True),
        ("so 1000 .", 1.0, "1000", True),
        # Without a mark commas stay: another vote, right when it is marked again.
        ("so 1,000", 0.0, "1,000", True),
        # A right last number makes up for a wrong marked answer, but not for its vote.
        ("#### 5 or 1000", 1.0, "5", False),
        ("####1000", 1.0, "1000", True),
        (". and", 0.0, ".", False),
        ("#### ,", 0.0, None, False),
        ("none", 0.0, None, False),
    ],
)
def test_the_published_scorer_keeps_its_errors(completion, reward, vote, correct):
    judgement = PUBLISHED.judge(ROW, completion)
    assert (judgement.reward, judgement.vote, judgement.correct) == (reward, vote, correct)
