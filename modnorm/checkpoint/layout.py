"""Physical tensors: a model's parameters as an inference engine stores them.

Masses, norms, scales and noise are all defined on physical tensors in their canonical, unsharded
layout, in every engine (paper, app. A.1: "fused QKV and fused gate-up").
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor inside a physical tensor: whole rows, in order."""

    name: str
    """Name in the checkpoint, for example `model.layers.0.self_attn.q_proj.weight`."""
    rows: int
    """Length along the first dimension."""


@dataclass(frozen=True)
class PhysicalTensor:
    """One parameter of the inference engine: a fused projection, a tied embedding once, a norm."""

    name: str
    """Name in the engine, for example `model.layers.0.self_attn.qkv_proj.weight`."""
    shape: tuple[int, ...]
    """Canonical shape: unsharded, without an engine's padding of the vocabulary."""
    parts: tuple[Part, ...]
    """Its checkpoint tensors, stacked along the first dimension."""

    @cached_property
    def numel(self) -> int:
        """Number of elements; element `e` is at row-major position `e`."""
        return prod(self.shape)


Layout = tuple[PhysicalTensor, ...]
"""All physical tensors of a model in canonical order, that of the engine's parameters."""
