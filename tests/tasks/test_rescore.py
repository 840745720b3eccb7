import pytest

from modnorm.errors import InvalidInputError
from modnorm.search.scoring import Answer
from modnorm.tasks import get_task
from modnorm.tasks.rescore import rescore

TASK = get_task("gsm8k")
ROWS = [TASK.parse({"question": "q", "answer": f"#### {n}"}) for n in ("1000", "7")]


def answer(row, completion):
    return Answer(
        row=row,
        completion=completion,
        reward=0.0,
        vote=None,
        correct=False,
        tokens=1,
        truncated=False,
    )


def test_stored_completions_are_judged_by_another_scorer():
    answers = [answer(1, "so 7"), answer(0, "so 1,000"), answer(0, "no")]
    default = rescore(answers, ROWS, TASK)
    published = rescore(answers, ROWS, get_task("gsm8k", scorer="reference"))
    assert [judgement.vote for judgement in default] == ["7", "1000", None]
    assert [judgement.vote for judgement in published] == ["7", "1,000", None]
    assert [judgement.reward for judgement in published] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("row", [2, -1])
def test_an_answer_to_no_row_is_refused(row):
    with pytest.raises(InvalidInputError, match="there are 2 rows"):
        rescore([answer(row, "7")], ROWS, TASK)
