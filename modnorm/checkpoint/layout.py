"""Physical tensors: a model's parameters as an inference engine stores them.

Masses, norms, scales and noise are all defined on physical tensors in their canonical, unsharded
layout, whatever engine holds the weights (paper, app. A.1: "fused QKV and fused gate-up").
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor inside a physical tensor: whole rows, in order."""

    name: str
    """Name in the checkpoint, `model.layers.0.self_attn.q_proj.weight` for instance."""
    rows: int
    """Length along the first dimension."""


@dataclass(frozen=True)
class PhysicalTensor:
    """One parameter of the inference engine: a fused projection, a tied embedding once, a norm."""

    name: str
    """Name in the engine, `model.layers.0.self_attn.qkv_proj.weight` for instance."""
    shape: tuple[int, ...]
    """Canonical shape: unsharded, without the rows that an engine pads a vocabulary with."""
    parts: tuple[Part, ...]
    """The checkpoint tensors it is made of, stacked along the first dimension."""

    @cached_property
    def numel(self) -> int:
        """Number of elements; element `e` is at row-major position `e`."""
        return prod(self.shape)


Layout = tuple[PhysicalTensor, ...]
"""All physical tensors of a model, in the canonical order: that of the engine's own parameters."""
