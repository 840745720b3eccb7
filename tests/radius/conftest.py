"""Handmade artifacts, and tiny random models of every family in float32."""

from collections.abc import Mapping
from statistics import fmean

import pytest
import torch

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.methods import build_scale_map
from modnorm.radius.artifact import (
    GridDocument,
    GridRadius,
    GridSettings,
    GridTrial,
    MethodSubject,
    RadiusArtifact,
    Subject,
)
from modnorm.spec import DataSpec, EngineSpec, Masses
from tests.random_models import random_model

SIZES: dict[str, object] = {
    "vocab_size": 60,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
WINDOWS: dict[str, object] = {
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"],
}
CHANGES: Mapping[str, Mapping[str, object]] = {
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": True},
    "llama": {},
    "mistral": {"sliding_window": 4},
    "olmo2": {"pad_token_id": 0},
    "gemma3_text": {**WINDOWS, "tie_word_embeddings": True},
    "olmo3": WINDOWS,
}
MODEL = Subject(name="somebody/Small", revision=None, digest="a" * 64)


def _method(name):
    return MethodSubject(name=name, masses=Masses(), profile=None, scale_map="b" * 64)


@pytest.fixture
def make_grid():
    """Make the artifact of a grid from the metrics of each radius under seeds 39, 40, ..."""

    def make(metrics, chosen, *, method="randopt", task="countdown"):
        seeds = tuple(39 + index for index in range(len(next(iter(metrics.values())))))
        document = GridDocument(
            model=MODEL,
            task=task,
            method=_method(method),
            radius=chosen,
            settings=GridSettings(
                population=4,
                ensemble_size=2,
                seeds=seeds,
                pool="nested",
                noise="portable-v1",
                scorer="countdown-v2",
                max_tokens=None,
                engine=EngineSpec(),
                selection=DataSpec(source="s.jsonl"),
                selection_digest="c" * 64,
                development=DataSpec(source="d.jsonl"),
                development_digest="d" * 64,
            ),
            radii=tuple(
                GridRadius(
                    radius=radius,
                    mean=fmean(values),
                    trials=tuple(
                        GridTrial(seed=seed, metric=value)
                        for seed, value in zip(seeds, values, strict=True)
                    ),
                )
                for radius, values in sorted(metrics.items())
            ),
        )
        return RadiusArtifact.of(document)

    return make


@pytest.fixture
def families():
    """Return the families that `checkpoint` covers."""
    return set(CHANGES)


@pytest.fixture(params=CHANGES)
def checkpoint(request, tmp_path):
    """Return a random model of each family on disk, with varied norms and no tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = random_model(request.param, **{**SIZES, **CHANGES[request.param]})
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.add_(torch.linspace(-0.3, 0.4, parameter.numel()))
    model.save_pretrained(tmp_path / "model")
    return resolve_checkpoint(str(tmp_path / "model"))


@pytest.fixture
def scale_map():
    """Build the scale map of a method that needs no profile, on a model."""

    def make(checkpoint, method) -> ScaleMap:
        return build_scale_map(method, checkpoint)

    return make


PROMPTS = [[5, 6, 7], list(range(20, 33)), [3 * i % 59 for i in range(11, 20)], [1, 2]]


@pytest.fixture
def prompts():
    """Return prompts of very different lengths, at least two tokens."""
    return [list(prompt) for prompt in PROMPTS]
