"""Students that cannot be written."""

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import UnavailableError
from modnorm.training.fine_tuning import write_student
from tests.faults import error_at


@pytest.fixture
def parameters():
    stored = CheckpointWeights(resolve_checkpoint("tiny-thicket"))
    whole = {tensor: stored.read(tensor) for tensor in stored.layout}
    return {
        part.name: piece
        for tensor, weights in whole.items()
        for part, piece in zip(
            tensor.parts, weights.split([part.rows for part in tensor.parts]), strict=True
        )
    }


def test_a_place_that_cannot_be_written_names_the_setting(parameters, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("a file")
    with error_at("out", "cannot write", kind=UnavailableError) as refused:
        write_student(resolve_checkpoint("tiny-thicket"), parameters, taken / "student", {})
    assert "--out" in (refused.value.remedy or "")
