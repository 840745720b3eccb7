"""The coefficient that multiplies a tensor's noise, from the norm of that noise."""

import torch

NORM_FLOOR = 1e-12
"""Lower bound of noise norms, as published."""


def coefficients_of(
    norms: torch.Tensor, scales: torch.Tensor | float, radius: float
) -> torch.Tensor:
    """Return `float32(R / (s_p * max(norm_p, 1e-12)))`, computed in float64 (paper, app. A).

    Args:
        norms: Norms of noise, fp32 or fp64 of any shape.
        scales: s_p, fp64 of the same shape, or one number.
        radius: R.

    Returns:
        fp32 of the same shape, on the same device, without waiting for it.
    """
    size = norms.to(torch.float64).clamp_min(NORM_FLOOR) * scales
    return torch.full_like(size, radius).div_(size).to(torch.float32)
