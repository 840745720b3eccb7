"""A small model with fused, tied, matrix and vector tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch

from modnorm.checkpoint.families import Layout, Part, PhysicalTensor
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView

QKV = "model.layers.0.self_attn.qkv_proj.weight"
BIAS = "model.layers.0.self_attn.qkv_proj.bias"
GATE_UP = "model.layers.0.mlp.gate_up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
FROZEN = "model.layers.0.input_layernorm.weight"

ROWS: tuple[tuple[str, tuple[int, ...], Norm, float | None], ...] = (
    ("model.embed_tokens.weight", (37, 16), Norm.MAX_ROW, 2.1),
    (QKV, (32, 16), Norm.SPECTRAL, 31.36),
    (BIAS, (32,), Norm.MAX_ABS, 31.36),
    ("model.layers.0.self_attn.o_proj.weight", (16, 16), Norm.SPECTRAL, 47.04),
    (GATE_UP, (48, 16), Norm.FROBENIUS, 17.64),
    (DOWN, (16, 24), Norm.SPECTRAL, 35.28),
    (FROZEN, (16,), Norm.MAX_ABS, None),
    ("model.norm.weight", (16,), Norm.MAX_ABS, 119.7),
)


PARTS = {QKV: (16, 8, 8), BIAS: (16, 8, 8), GATE_UP: (24, 24)}
"""Rows of the parts of fused tensors."""


@pytest.fixture(scope="session")
def checkpoint() -> Checkpoint:
    return resolve_checkpoint("tiny-thicket")


def scale_map_of(
    method: str,
    rows: Sequence[tuple[str, tuple[int, ...], Norm, float | None]],
    rank: int | None = None,
) -> ScaleMap:
    """Return a scale map with the given names, shapes, norms and scales."""
    return ScaleMap(
        method,
        "5" * 64,
        tuple(
            TensorScale(
                name=name,
                shape=shape,
                group="other",
                role="other",
                layer=None,
                norm=norm,
                mass=1.0,
                base_scale=scale,
                correction=1.0,
                scale=scale,
            )
            for name, shape, norm, scale in rows
        ),
        rank,
    )


@dataclass(frozen=True)
class TinyModel:
    """A layout, a scale map, and weights that are equal on each call."""

    scale_map: ScaleMap

    @property
    def layout(self) -> Layout:
        return tuple(
            PhysicalTensor(
                row.name,
                row.shape,
                tuple(
                    Part(f"{row.name}.{index}", rows)
                    for index, rows in enumerate(PARTS.get(row.name, (*row.shape, 1)[:1]))
                ),
            )
            for row in self.scale_map.tensors
        )

    def base(self, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
        """Return new weights of usual magnitudes: matrices near 0, vectors near 1."""
        generator = torch.Generator().manual_seed(1)
        return {
            tensor.name: (
                torch.randn(tensor.shape, generator=generator) * 0.02 + (len(tensor.shape) == 1)
            ).to(dtype)
            for tensor in self.layout
        }

    def views(
        self,
        blocks: Mapping[str, Sequence[Block]] | None = None,
        base: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, list[WeightView]]:
        """Return the weights in new memory, tensors in `blocks` in blocks and others whole."""
        base = base or self.base()
        cuts = {name: [Block.whole(tuple(tensor.shape))] for name, tensor in base.items()}
        cuts.update({name: list(parts) for name, parts in (blocks or {}).items()})
        return {
            name: [WeightView(block.of(base[name]).clone(), block) for block in parts]
            for name, parts in cuts.items()
        }

    def hold(self, views: Mapping[str, Sequence[WeightView]] | None = None) -> CandidateWeights:
        return CandidateWeights(
            self.layout, views or self.views(), model_digest=self.scale_map.model_digest
        )

    def descriptor(
        self, seed: int = 1, *, radius: float = 0.16, noise: str = "portable-v1"
    ) -> Descriptor:
        return Descriptor(
            noise=noise,
            seed=seed,
            method=self.scale_map.method,
            radius=radius,
            scale_map=self.scale_map.digest,
        )


@pytest.fixture
def model() -> TinyModel:
    """Return a model under the modular norm, with one tensor that is not perturbed."""
    return TinyModel(scale_map_of("modular_norm", ROWS))


@pytest.fixture
def isotropic() -> TinyModel:
    return TinyModel(
        scale_map_of("randopt", [(name, shape, Norm.UNIT, 1.0) for name, shape, _, _ in ROWS])
    )


@pytest.fixture
def unperturbed() -> TinyModel:
    return TinyModel(
        scale_map_of("base", [(name, shape, norm, None) for name, shape, norm, _ in ROWS])
    )


def low_rank_rows(
    norms: Mapping[str, Norm] | None = None,
) -> list[tuple[str, tuple[int, ...], Norm, float | None]]:
    """Return the rows of the model with only matrices active, by default with natural norms."""
    changed = {GATE_UP: Norm.SPECTRAL, **(norms or {})}
    return [
        (name, shape, changed.get(name, norm), scale if len(shape) == 2 else None)
        for name, shape, norm, scale in ROWS
    ]


@pytest.fixture(params=["modular_norm", "randopt"])
def low_rank(request: pytest.FixtureRequest) -> TinyModel:
    """Return a model under noise of rank 3, of which vectors have none."""
    isotropic = {name: Norm.UNIT for name, shape, _, _ in ROWS if len(shape) == 2}
    norms = isotropic if request.param == "randopt" else None
    return TinyModel(scale_map_of(request.param, low_rank_rows(norms), rank=3))
