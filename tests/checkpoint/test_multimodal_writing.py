"""The decoder of a multimodal model is written back into it, and any tool loads the result."""

from typing import Any

import pytest
import torch
from transformers import Gemma3ForConditionalGeneration

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import cast_checkpoint
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import export_candidate
from modnorm.perturbation.methods import build_scale_map
from tests.checkpoint.conftest import ODD_SIZES
from tests.random_models import random_model


@pytest.fixture
def gemma(tmp_path):
    made = random_model("gemma3", **ODD_SIZES)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    made.save_pretrained(tmp_path / "gemma")
    return tmp_path / "gemma"


def load_whole(directory):
    """Load a model by transformers, and check that the file has every weight."""
    loaded: Any = Gemma3ForConditionalGeneration.from_pretrained(
        directory, output_loading_info=True
    )
    model, found = loaded
    assert not any(found.values())
    return model.state_dict()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_cast_model_is_the_whole_model_rounded(gemma, tmp_path, dtype):
    digest = cast_checkpoint(resolve_checkpoint(str(gemma)), dtype, tmp_path / "out")
    before, after = load_whole(gemma), load_whole(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name].to(dtype)) for name in before)
    stored = CheckpointWeights(resolve_checkpoint(str(tmp_path / "out")))
    assert weights_sha256(stored.layout, stored.read) == digest


def test_an_exported_candidate_keeps_the_tensors_outside_of_its_decoder(gemma, tmp_path):
    checkpoint = resolve_checkpoint(str(gemma))
    scale_map = build_scale_map("randopt", checkpoint)
    drawn = Descriptor("portable-v1", 7, "randopt", 0.01, scale_map.digest)
    export_candidate(checkpoint, drawn, scale_map, tmp_path / "out")
    before, after = load_whole(gemma), load_whole(tmp_path / "out")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    decoder = {name for name in before if "language_model" in name or "lm_head" in name}
    assert changed == decoder
