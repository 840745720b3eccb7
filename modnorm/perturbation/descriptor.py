"""The descriptor: the few hundred bytes that define one perturbed model."""

from dataclasses import dataclass, replace
from typing import Self

BASE = "base"
"""Method of the unperturbed model."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A candidate as a function of its seed; no weights ever travel.

    The unperturbed base is the descriptor of method `base`: no tensor is active in its scale map.
    """

    noise: str
    """Noise scheme by name, `portable-v1` for instance."""
    seed: int
    method: str
    radius: float
    """R of the paper; sigma for isotropic noise."""
    scale_map: str
    """Digest of the scale map that the candidate was drawn with."""
    coefficients: tuple[float, ...] | None = None
    """R / (s_p * norm(Z_p)) of each active tensor, each exactly a float32; None until resolved.

    Norms are reductions, which no two devices sum alike. Whoever evaluates a candidate first
    resolves them, and every later rebuild uses these.
    """
    lineage: str = ""
    """Digest of the trained state that the candidate is drawn around; empty for the base model."""

    def resolved(self, coefficients: tuple[float, ...]) -> Self:
        """Return the same descriptor with its coefficients filled in."""
        return replace(self, coefficients=coefficients)


def base_descriptor(scale_map_digest: str, noise: str) -> Descriptor:
    """Return the descriptor of the unperturbed model: seed 0, radius 0, no coefficients to find.

    Args:
        scale_map_digest: Digest of a scale map of method `base`, where no tensor is active.
        noise: Noise scheme by name; nothing is drawn from it.
    """
    return Descriptor(noise, 0, BASE, 0.0, scale_map_digest, coefficients=())
