import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights


def test_a_model_is_written_in_another_dtype(modnorm_json, tmp_path):
    out = tmp_path / "model"
    said = modnorm_json("cast", "--model", "tiny-thicket", "--dtype", "float16", "--out", out)
    assert said["directory"] == str(out)
    assert str(CheckpointWeights(resolve_checkpoint(str(out))).dtype) == "torch.float16"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dtype", "int8", "--out", "new"), "'int8' is not one of"),
        (("--dtype", "float16", "--out", "."), "is not empty"),
    ],
)
def test_what_cannot_be_written_is_refused(refusal, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "note.txt").write_text("mine")
    assert message in refusal("cast", "--model", "tiny-thicket", *arguments)
