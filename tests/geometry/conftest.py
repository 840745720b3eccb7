"""Random models of the supported families, as configurations and weights in memory."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from modnorm.checkpoint.families import Layout, PhysicalTensor, physical_layout

CONFIG: dict[str, object] = {
    "model_type": "qwen2",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class RandomModel:
    """A layout with bfloat16 weights."""

    layout: Layout
    weights: dict[str, torch.Tensor]

    def read(self, tensor: PhysicalTensor) -> torch.Tensor:
        return self.weights[tensor.name]


MakeModel = Callable[..., RandomModel]


@pytest.fixture
def small_config() -> dict[str, object]:
    """Return the base configuration of `make_model`."""
    return dict(CONFIG)


@pytest.fixture
def make_model(small_config: dict[str, object]) -> MakeModel:
    """Return a function that draws a model with gains below, between and above the clips."""

    def make(seed: int = 0, **changes: object) -> RandomModel:
        layout = physical_layout({**small_config, **changes})
        generator = torch.Generator().manual_seed(seed)
        spread = torch.rand(len(layout), generator=generator)
        weights = {
            tensor.name: (torch.randn(tensor.shape, generator=generator) * 10 ** (2 * s - 2)).to(
                torch.bfloat16
            )
            for tensor, s in zip(layout, spread.tolist(), strict=True)
        }
        return RandomModel(layout, weights)

    return make
