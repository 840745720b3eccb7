"""Questions with prompts that fit the base."""

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.errors import InvalidInputError
from modnorm.prediction.predictor import Predictor
from tests.faults import error_at
from tests.prediction.test_voting_experts import ensemble


def test_a_question_that_does_not_fit_the_model_is_named_by_its_place():
    base = resolve_checkpoint("tiny-thicket")
    predictor = Predictor(ensemble([1]), base)
    placed = [("a.jsonl, line 1", {"question": "1 + 1?"})]
    assert len(predictor.encode(placed).prompts) == 1
    long = [*placed, ("a.jsonl, line 2", {"question": "1 + " * 2000})]
    with error_at("input", r"a\.jsonl, line 2: .* exceed the 2048"):
        predictor.encode(long)
    with pytest.raises(InvalidInputError, match="no questions"):
        predictor.encode([])
