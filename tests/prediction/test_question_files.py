"""Files of questions and of answers."""

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.prediction.question_files import encode_questions
from modnorm.tasks import get_task
from tests.prediction.test_voting_experts import ensemble


def test_a_question_that_does_not_fit_the_model_is_named_by_its_place():
    base, task = resolve_checkpoint("tiny-thicket"), get_task("gsm8k")
    placed = [("a.jsonl, line 1", {"question": "1 + 1?"})]
    encoded = encode_questions(ensemble([1]), base, task, placed)
    assert encoded.places == ("a.jsonl, line 1",)
    assert len(encoded.questions.prompts) == 1
    long = [*placed, ("a.jsonl, line 2", {"question": "1 + " * 2000})]
    with pytest.raises(InvalidInputError, match=r"a\.jsonl, line 2: .* exceed the 2048") as caught:
        encode_questions(ensemble([1]), base, task, long)
    assert caught.value.field == "input"
    with pytest.raises(InvalidInputError, match="no questions"):
        encode_questions(ensemble([1]), base, task, [])
