"""The descriptor: the few hundred bytes that define one perturbed model."""

from dataclasses import dataclass, replace
from typing import Self

BASE = "base"
"""Method of the unperturbed model."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A candidate as a function of its seed, without weights.

    The descriptor of method `base` is the unperturbed model: its scale map has no active tensor.
    """

    noise: str
    """Name of the noise scheme, for example `portable-v1`."""
    seed: int
    method: str
    radius: float
    """R of the paper; sigma for isotropic noise."""
    scale_map: str
    """Digest of the scale map that the candidate was drawn with."""
    coefficients: tuple[float, ...] | None = None
    """R / (s_p * norm(Z_p)) of each active tensor, each exactly a float32; None until resolved.

    Devices sum norms in different orders and round them differently. So the first evaluator of a
    candidate resolves its coefficients, and every later rebuild uses them.
    """
    lineage: str = ""
    """Digest of the trained state that is perturbed; empty for the base model."""

    def resolved(self, coefficients: tuple[float, ...]) -> Self:
        """Return the same descriptor with its coefficients filled in."""
        return replace(self, coefficients=coefficients)


def base_descriptor(scale_map_digest: str, noise: str) -> Descriptor:
    """Return the descriptor of the unperturbed model: seed 0, radius 0, no coefficients.

    Its scale map is of method `base` and has no active tensor, so the scheme generates nothing.
    """
    return Descriptor(noise, 0, BASE, 0.0, scale_map_digest, coefficients=())
