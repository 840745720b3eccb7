"""Fixtures with the vLLM engine and the transformers engine of one model."""

# ruff: noqa: PLC0415 - vLLM is optional
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, GenerationLimits
from modnorm.engines.transformers_engine import TransformersEngine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.methods import build_scale_map

if TYPE_CHECKING:
    from modnorm.engines.vllm.engine import VllmEngine

Prompts = Sequence[Sequence[int]]


@pytest.fixture(scope="module")
def pair(float32: Checkpoint) -> "Iterator[tuple[VllmEngine, TransformersEngine]]":
    """Both engines of one model, for a module: a process can hold one vLLM engine at a time."""
    from modnorm.engines.vllm.engine import VllmEngine

    ours = VllmEngine(float32, EngineSettings(max_model_len=512, max_num_seqs=16))
    theirs = TransformersEngine(float32)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture(scope="module")
def engine(pair: "tuple[VllmEngine, TransformersEngine]") -> "VllmEngine":
    return pair[0]


@pytest.fixture(scope="module")
def model(engine: "VllmEngine") -> torch.nn.Module:
    """vLLM's own model, which lives in this process."""
    model: torch.nn.Module = engine._engine.model_executor.driver_worker.worker.get_model()
    return model


@pytest.fixture(scope="session")
def scale_map(float32: Checkpoint) -> ScaleMap:
    return build_scale_map("randopt", float32)


@pytest.fixture(scope="session")
def answers() -> Callable[..., dict[int, str]]:
    """Return the texts that an engine answers prompts with, by prompt."""

    def answers(engine: Engine, prompts: Prompts) -> dict[int, str]:
        with closing(engine.generate(prompts, GenerationLimits(32))) as completions:
            return {done.index: done.text for done in completions}

    return answers


@pytest.fixture(scope="session")
def long_prompts(prompts: Prompts) -> Prompts:
    """Prompts of several cache blocks: shorter ones never meet a prefix cache."""
    return [[*prompts[4], *prompts[2], *prompts[3]] * 2, *prompts]
