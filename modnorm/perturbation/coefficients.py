"""From the norm of noise to the coefficient that it is multiplied with."""

import torch

NORM_FLOOR = 1e-12
"""Noise norms count as at least this (the published floor)."""


def coefficients_of(
    norms: torch.Tensor, scales: torch.Tensor | float, radius: float
) -> torch.Tensor:
    """Return `float32(R / (s_p * max(norm_p, 1e-12)))`, computed in float64 (paper, app. A).

    Args:
        norms: Norms of noise, fp32 of any shape.
        scales: s_p, fp64 of the same shape, or one number.
        radius: R.

    Returns:
        fp32 of the same shape, on the same device; nothing waits for the device.
    """
    size = norms.to(torch.float64).clamp_min(NORM_FLOOR) * scales
    return torch.full_like(size, radius).div_(size).to(torch.float32)
