import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.tasks import get_task
from modnorm.tasks.gsm8k import WINDOW, final_answer, published_readings
from tests.faults import error_at

TASK = get_task("gsm8k")
PUBLISHED = get_task("gsm8k", scorer="reference")
ROW = TASK.parse({"question": "How many?", "answer": "500 + 500 = 1,000\n#### 1,000"})


def test_the_prompt_is_the_papers():
    (message,) = TASK.messages(ROW)
    assert message.role == "user"
    assert message.content == (
        'How many? Let\'s think step by step and output the final answer after "####".'
    )


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
        ("#### 14 = 7 * 2", "14"),
        ("#### 20 / 4 = ", "20"),
        ("#### 18 (= 9 * 2)", "18"),
        ("#### -0", "0"),
        ("#### 007", "7"),
        ("#### .50", "0.5"),
        ("#### \u22123", "-3"),
        ("#### 5 and then #### 6", "6"),
        # Without a marked number the last one counts.
        ("#### none", None),
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
    assert final_answer(completion) == vote


@pytest.mark.parametrize("text", ["#### 18", "#### $18.", "so 18 of them"])
def test_the_answer_may_be_anywhere_in_the_completion(text):
    assert final_answer(text + " and" * 500) == "18"
    assert final_answer("12345" + "x" * 298) == "12345"


def test_the_published_scorer_reads_only_the_end_of_the_completion():
    assert published_readings("#### 5" + " " * WINDOW) == (None, None)
    assert published_readings("#### 5" + " " * (WINDOW - 6)) == ("5", "5")
    judgement = PUBLISHED.judge(ROW, "#### 1000" + "x" * 500)
    assert (judgement.reward, judgement.vote, judgement.correct) == (0.0, None, False)


@given(st.integers(-(10**9), 10**9))
def test_every_way_to_write_an_integer_is_one_vote(number):
    forms = [f"{number}", f"{number:,}", f"{number}.", f"{number:,}.00", f"${number}"]
    assert {final_answer(f"#### {form}") for form in forms} == {str(number)}
    assert {final_answer(f"so {form}") for form in forms} == {str(number)}


@given(st.text())
def test_judging_never_raises(completion):
    assert TASK.judge(ROW, completion).reward in {0.0, 1.0}


def test_reward_is_correctness():
    right, wrong = TASK.judge(ROW, "#### 1000"), TASK.judge(ROW, "#### 999")
    assert (right.reward, right.vote, right.correct) == (1.0, "1000", True)
    assert (wrong.reward, wrong.vote, wrong.correct) == (0.0, "999", False)


def test_the_metric_is_accuracy():
    assert TASK.metric([ROW] * 4, [True, False, False, True]) == 0.5


@pytest.mark.parametrize(
    ("raw", "column"),
    [
        ({"answer": "#### 1"}, "question"),
        ({"question": " ", "answer": "#### 1"}, "question"),
        ({"question": "\ud800?", "answer": "#### 1"}, "question"),
        ({"question": "How many?"}, "answer"),
        ({"question": "How many?", "answer": None}, "answer"),
        ({"question": "How many?", "answer": True}, "answer"),
        ({"question": "How many?", "answer": "many"}, "answer"),
    ],
)
def test_malformed_rows_name_their_column(raw, column):
    with error_at(column):
        TASK.parse(raw)


@pytest.mark.parametrize(
    ("completion", "reward", "vote", "correct"),
    [
        ("#### 1,000", 1.0, "1000", True),
        ("#### 1000.", 0.0, "1000.", False),
        ("#### $1000", 1.0, "1000", True),
        ("so 1000", 1.0, "1000", True),
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


@given(st.text() | st.text(alphabet="#0123456789., -$", max_size=60))
def test_published_judging_never_raises(completion):
    assert PUBLISHED.judge(ROW, completion).reward in {0.0, 1.0}
