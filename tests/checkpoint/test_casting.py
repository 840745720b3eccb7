"""A model in another dtype is the same model, rounded."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import cast_checkpoint
from modnorm.engines import load_engine
from modnorm.errors import ConflictError, InvalidInputError

TINY = resolve_checkpoint("tiny-thicket")


def test_each_weight_is_rounded_once(tmp_path):
    dtype = torch.float16
    digest = cast_checkpoint(TINY, dtype, tmp_path / "model")

    written = resolve_checkpoint(str(tmp_path / "model"))
    stored, original = CheckpointWeights(written), CheckpointWeights(TINY)
    assert stored.dtype == dtype
    assert weights_sha256(stored.layout, stored.read) == digest
    for tensor in original.layout:
        assert torch.equal(stored.read(tensor), original.read(tensor).to(dtype))
    engine = load_engine("transformers", written)
    assert engine.weights_sha256() == digest
    engine.close()


def test_the_card_of_a_model_says_that_it_was_cast(tmp_path):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    assert not (source / "README.md").exists()
    (source / "README.md").write_text("---\ntags: []\n---\n\n# Mine\n")
    cast_checkpoint(resolve_checkpoint(str(source)), torch.float16, tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert card.startswith("---\ntags: []\n---\n\n# Mine\n\n## Cast\n")
    assert "wrote the weights in float16" in card


def test_overflowing_weights_are_refused_before_anything_is_written(tmp_path):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    tensors = load_file(source / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(InvalidInputError, match="weight has 999424, which float16"):
        cast_checkpoint(resolve_checkpoint(str(source)), torch.float16, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(ConflictError, match="not empty"):
        cast_checkpoint(TINY, torch.float16, source)


@pytest.mark.parametrize(("declared", "mixed"), [("float16", False), ("float64", True)])
def test_what_needs_casting_is_cast(tmp_path, declared, mixed):
    source = tmp_path / "source"
    cast_checkpoint(TINY, torch.bfloat16, source)
    config = json.loads((source / "config.json").read_text())
    del config["dtype"]
    (source / "config.json").write_text(json.dumps({**config, "torch_dtype": declared}))
    if mixed:
        tensors = load_file(source / "model.safetensors")
        names = ("model.norm.weight", "model.embed_tokens.weight")
        for name, dtype in zip(names, (torch.float64, torch.float32), strict=True):
            tensors[name] = tensors[name].to(dtype)
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InvalidInputError, match="is stored as") as refused:
            CheckpointWeights(resolve_checkpoint(str(source)))
        assert "modnorm cast" in (refused.value.remedy or "")

    digest = cast_checkpoint(resolve_checkpoint(str(source)), torch.bfloat16, tmp_path / "out")

    stored = CheckpointWeights(TINY)
    assert digest == weights_sha256(stored.layout, stored.read)
    assert CheckpointWeights(resolve_checkpoint(str(tmp_path / "out"))).dtype == torch.bfloat16
