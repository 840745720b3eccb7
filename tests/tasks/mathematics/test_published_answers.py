import pytest

from modnorm.tasks.mathematics.answer_extraction import (
    WINDOW,
    published_answer,
    published_correct,
    published_equal,
    published_judgement,
)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{1} \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{ \frac{1}{2} and \boxed{5}", "5"),
        (r"\boxed{a{b}", "a{b"),
        (r"It is \(5\).", "5"),
        ("It is $5$.\nBye", "5"),
        ("x = $ 5 $", "5"),
        (r"the answer is: **\(7\)**", "7"),
        ("The answer is 7. Really", "7"),
        ("Therefore, the answer is 7", "7"),
        ("So 7", "7"),
        ("final answer: 7", "7"),
        ("x = 7", "7"),
        ("x = 7\n\n", None),
        ("#### 7", None),
        (r"\boxed{7}" + " " * WINDOW, None),
    ],
)
def test_answers_are_found_as_by_the_published_code(completion, answer):
    assert published_answer(completion) == answer


@pytest.mark.parametrize(
    ("answer", "truth", "equal"),
    [
        ("5", "5", True),
        ("( 1, 2 )", "(1,2)", True),
        (r"\dfrac{1}{2}", r"\frac{1}{2}", True),
        (r"\left(1\right)", "(1)", True),
        (r"\text{Evelyn}", "{Evelyn}", True),
        ("Evelyn", "evelyn", True),
        ("11,111,111", "11111111", True),
        (r"90^{\circ}", "90\u00b0", True),
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{1}{0}", "2", False),
        ("1e3", "1000", True),
        # The last rule compares only the numbers that occur.
        (r"2\sqrt{3}", r"\frac{2}{3}", True),
        (r"\sqrt{2}", "2", True),
        ("nan", "nan", True),
        ("x + Y", "X+y", True),
        ("- 3x", "-3", True),
        (r"\Pi", r"\pi", False),
        ("x", "y", False),
        ("1/2", r"\frac{1}{3}", False),
    ],
)
def test_answers_are_compared_as_by_the_published_code(answer, truth, equal):
    assert published_equal(answer, truth) is equal


def test_the_vote_is_the_answer_as_written_and_read_back_from_a_box():
    judgement = published_judgement(r"\boxed{ 1/2 }", "1/2")
    assert (judgement.reward, judgement.vote, judgement.correct) == (1.0, " 1/2 ", True)
    assert published_judgement(r"\boxed{}", "1").vote is None
    wrong = published_judgement(r"\boxed{3}", "1/2")
    assert (wrong.reward, wrong.vote, wrong.correct) == (0.0, "3", False)
    long = "1 " * WINDOW
    assert published_equal(long, long)
    assert not published_correct(long, long)
