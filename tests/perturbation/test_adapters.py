"""Adapters of candidates: their files, the weights that PEFT merges, and refusals."""

import json
from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from modnorm.checkpoint.families import FAMILIES, family_of
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import CandidateError, IncompatibleError, InvalidInputError
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.exports import adapter_tensors, write_adapter
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.methods import build_scale_map
from tests.checkpoint.conftest import ODD_SIZES
from tests.random_models import random_model

RANK = 3


@pytest.fixture
def make_base(tmp_path):
    """Write a random float32 model of a family and return it."""

    def make(family):
        torch.manual_seed(7)
        model = random_model(family, **ODD_SIZES)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        model.save_pretrained(tmp_path / "base")
        return resolve_checkpoint(str(tmp_path / "base"))

    return make


@pytest.fixture
def base(make_base):
    return make_base("qwen2")


def make_scale_map(base, target_modules="all-linear", rank=RANK):
    return build_scale_map("randopt", base, rank=rank, target_modules=target_modules)


def apply(base, scale_map):
    """Return a resolved candidate, and the model's parts before and after it was applied."""
    stored = CheckpointWeights(base)
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    before = split(stored.layout, tensors)
    views = {
        name: [WeightView(values, Block.whole(tuple(values.shape)))]
        for name, values in tensors.items()
    }
    weights = CandidateWeights(stored.layout, views, model_digest=base.digest)
    drawn = Descriptor("portable-v1", 7, "randopt", 0.05, scale_map.digest)
    resolved = weights.apply(drawn, scale_map)
    return resolved, before, split(stored.layout, tensors)


def split(layout, tensors):
    return {
        part.name: piece.clone()
        for tensor in layout
        for part, piece in zip(
            tensor.parts,
            tensors[tensor.name].split([part.rows for part in tensor.parts]),
            strict=True,
        )
    }


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_merged_weights_are_those_of_the_candidate(family, make_base, tmp_path):
    base = make_base(family)
    scale_map = make_scale_map(base)
    resolved, before, after = apply(base, scale_map)
    write_adapter(base, resolved, scale_map, tmp_path / "adapter")

    model = AutoModelForCausalLM.from_pretrained(base.directory)
    others = {name: each.clone() for name, each in model.state_dict().items() if is_vision(name)}
    merged = PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload()
    found = merged.state_dict()
    prefix = family_of(base.config).decoder_prefix
    changed = set()
    for name, expected in after.items():
        inner = name.removeprefix("model.")
        values = found[name if inner == name else prefix + inner]
        delta = expected - before[name]
        # Both sums round: their terms are of the size of base and perturbation.
        largest = (before[name].abs().max() + delta.abs().max()).item()
        torch.testing.assert_close(values, expected, rtol=0, atol=2**-22 * largest)
        if delta.any():
            changed.add(name)
    perturbed = {scale.name for scale in scale_map.active}
    layout = CheckpointWeights(base).layout
    assert changed == {
        part.name for tensor in layout if tensor.name in perturbed for part in tensor.parts
    }
    assert all(torch.equal(found[name], values) for name, values in others.items())
    assert bool(others) is (family == "gemma3")


def is_vision(name):
    return "vision_tower" in name or "multi_modal_projector" in name


def test_the_files_are_in_the_format_of_peft(base, tmp_path):
    scale_map = make_scale_map(base)
    resolved, *_ = apply(base, scale_map)
    write_adapter(base, resolved, scale_map, tmp_path / "adapter", card="# An adapter\n")
    files = {path.name: path for path in (tmp_path / "adapter").iterdir()}
    assert sorted(files) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "candidate.json",
    ]
    config = json.loads(files["adapter_config.json"].read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", RANK, RANK)
    assert config["base_model_name_or_path"] == str(base.directory)
    assert config["target_modules"] == [
        *("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
    ]
    stored = load_file(files["adapter_model.safetensors"])
    made = adapter_tensors(base, resolved, scale_map)
    assert stored.keys() == made.keys()
    assert all(torch.equal(stored[name], made[name]) for name in made)
    assert {values.dtype for values in stored.values()} == {torch.float32}
    assert json.loads(files["candidate.json"].read_text())["seed"] == 7
    modes = {path.stat().st_mode & 0o777 for path in files.values()}
    assert len(modes) == 1


def test_the_scale_is_in_lora_b_alone(base):
    """A is noise, exact in float32; B is noise times the coefficient of its matrix."""
    scale_map = make_scale_map(base)
    resolved, *_ = apply(base, scale_map)
    tensors = adapter_tensors(base, resolved, scale_map)
    larger = replace(resolved, coefficients=tuple(2 * each for each in resolved.coefficients))
    doubled = adapter_tensors(base, larger, scale_map)
    for name, values in tensors.items():
        is_noise = ".lora_A." in name
        if is_noise:
            steps = values.double() * 2**13
            assert torch.equal(steps, steps.round())
        assert torch.equal(doubled[name], values if is_noise else 2 * values)


def test_noise_of_full_rank_is_no_adapter(base, tmp_path):
    scale_map = make_scale_map(base, "all", rank=None)
    resolved, *_ = apply(base, scale_map)
    with pytest.raises(InvalidInputError, match="full rank cannot be adapters") as refused:
        write_adapter(base, resolved, scale_map, tmp_path / "adapter")
    assert "modnorm rebuild" in (refused.value.remedy or "")
    assert not (tmp_path / "adapter").exists()


def test_descriptors_of_others_are_refused(base, tmp_path):
    scale_map = make_scale_map(base)
    resolved, *_ = apply(base, scale_map)
    unresolved = replace(resolved, coefficients=None)
    of_another_map = replace(resolved, scale_map="0" * 64)
    of_another_model = replace(scale_map, model_digest="0" * 64)
    with pytest.raises(CandidateError, match="a coefficient for each"):
        write_adapter(base, unresolved, scale_map, tmp_path / "adapter")
    for descriptor, used in (
        (of_another_map, scale_map),
        (replace(resolved, scale_map=of_another_model.digest), of_another_model),
    ):
        with pytest.raises(IncompatibleError, match="another model or scale map"):
            write_adapter(base, descriptor, used, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
