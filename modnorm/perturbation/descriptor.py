"""The descriptor: the few hundred bytes that define one perturbed model."""

from dataclasses import dataclass, replace
from typing import Self


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

    def resolved(self, coefficients: tuple[float, ...]) -> Self:
        """Return the same descriptor with its coefficients filled in."""
        return replace(self, coefficients=coefficients)
