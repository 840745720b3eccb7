"""A small model's tensors: an embedding, matrices, vectors."""

import pytest
import torch

from modnorm.checkpoint.families import Layout, Part, PhysicalTensor
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.held_tensor import WeightView

SHAPES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("model.embed_tokens.weight", (37, 16)),
    ("model.layers.0.self_attn.qkv_proj.weight", (32, 16)),
    ("model.layers.0.self_attn.qkv_proj.bias", (32,)),
    ("model.layers.0.mlp.down_proj.weight", (16, 24)),
    ("model.norm.weight", (16,)),
)
MODEL = "5" * 64


class Small:
    """A layout, its isotropic scale map, and weights that are equal on each call."""

    layout: Layout = tuple(PhysicalTensor(n, s, (Part(n, s[0]),)) for n, s in SHAPES)
    scale_map = ScaleMap(
        "randopt",
        MODEL,
        tuple(TensorScale(n, s, "o", "o", None, Norm.UNIT, 1, 1, 1, 1.0) for n, s in SHAPES),
    )

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        generator = torch.Generator().manual_seed(1)
        self.base = {
            name: (torch.randn(shape, generator=generator) * 0.02 + (len(shape) == 1)).to(dtype)
            for name, shape in SHAPES
        }

    def hold(self) -> tuple[CandidateWeights, dict[str, torch.Tensor]]:
        """Return candidate weights, and the memory that they write to."""
        memory = {name: value.clone() for name, value in self.base.items()}
        views = {
            name: [WeightView(value, Block.whole(tuple(value.shape)))]
            for name, value in memory.items()
        }
        weights = CandidateWeights(
            self.layout,
            views,
            model_digest=MODEL,
            origin=lambda tensors: (self.base[one.name] for one in tensors),
        )
        return weights, memory


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float32])
def small(request: pytest.FixtureRequest) -> Small:
    return Small(request.param)
