"""Answer sheets as a worker sends them."""

from fractions import Fraction

import numpy as np
import pytest

from modnorm.engines import Completion, Finish, GenerationLimits
from modnorm.errors import InvalidInputError, TooLargeError
from modnorm.search import scoring
from modnorm.search.answers import Answer
from modnorm.search.scoring import PromptedRows
from modnorm.tasks import Judgement, get_task
from modnorm.wire import answer_sheets
from modnorm.wire.answer_sheets import pack_answers, pack_text, read_answers, unpack_answers

ROWS = PromptedRows(get_task("countdown"), [{}], [()], GenerationLimits(8))
ANSWER = Answer(0, "4 + 4", 0.1, "8", correct=True, tokens=3, truncated=False)


@pytest.mark.parametrize("reward", [True, 1, np.float32(1), Fraction(1, 2)])
def test_a_task_may_give_any_real_number(monkeypatch, reward):
    judgement = Judgement(reward=reward, vote="8", correct=True)
    monkeypatch.setattr(scoring, "judge", lambda *_: judgement)
    completion = Completion(index=0, text="4 + 4", tokens=3, finish=Finish.STOP)
    (read,) = read_answers(pack_answers([ROWS.answer_of(completion)]))
    assert (read.reward, read.correct) == (float(reward), True)
    assert (read,) == unpack_answers(pack_answers([read]))


def test_a_sheet_that_is_no_sheet_is_refused(monkeypatch):
    for sheet in (b"", b"no sheet", pack_answers([ANSWER])[:-1], pack_text('[[0, "4"]]')):
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_answers(sheet)
    monkeypatch.setattr(answer_sheets, "MAX_BYTES", 100)
    assert read_answers(pack_answers([ANSWER])) == (ANSWER,)
    with pytest.raises(TooLargeError):
        read_answers(pack_answers([ANSWER] * 3))
