"""Operator norm of a Jacobian by power iteration (paper, eq. app_power_iteration)."""

from collections.abc import Callable
from typing import cast

import torch

FunctionalMap = Callable[[torch.Tensor], torch.Tensor]
"""A smooth map of one activation to one activation."""

FLOOR = 1e-12
"""Lower bound of divisors and estimates."""


def operator_norm(
    function: FunctionalMap, at: torch.Tensor, *, seed: int, iterations: int = 3
) -> float:
    """Estimate the largest local amplification of a unit Euclidean perturbation.

    JVP and VJP are computed in the dtype of the activation, norms in float32 or wider. Apart from
    rounding, the estimate never exceeds the true norm and grows with the iterations.

    Args:
        function: The map f.
        at: Activation x, any shape, floating dtype, any device.
        seed: Seed of the Gaussian start vector, drawn on the device of `at`.
        iterations: Power-iteration steps before the last JVP.

    Returns:
        max(|J_f(x) v|_2, 1e-12); 1e-12 at once if a product vanishes earlier. Not finite if the
        map is not finite at `at`.
    """
    push_forward, pull_back = _products(function, at)
    direction = start_vector(at, seed)
    for _ in range(iterations):
        pushed = push_forward(direction)
        length = _length(pushed)
        if length <= FLOOR:
            return FLOOR
        pulled = pull_back(_unit(pushed, length))
        length = _length(pulled)
        if length <= FLOOR:
            return FLOOR
        direction = _unit(pulled, length)
    last = _length(push_forward(direction))
    return float(last.clamp_min(FLOOR))


def start_vector(at: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a Gaussian vector of unit length, drawn in the dtype and on the device of `at`."""
    generator = torch.Generator(device=at.device).manual_seed(seed)
    vector = torch.randn(at.shape, generator=generator, dtype=at.dtype, device=at.device)
    return vector / _length(vector).clamp_min(FLOOR).to(at.dtype)


def _products(function: FunctionalMap, at: torch.Tensor) -> tuple[FunctionalMap, FunctionalMap]:
    """Return the products of the Jacobian and of its transpose with a vector.

    The map runs once. The product with the Jacobian is the derivative of the transposed product,
    which is linear. Torch's forward mode would run the map again, each operation in Python.
    """
    image, pull_back = _transposed(function, at)
    _, push_forward = _transposed(pull_back, torch.zeros_like(image))
    return push_forward, pull_back


def _transposed(function: FunctionalMap, at: torch.Tensor) -> tuple[torch.Tensor, FunctionalMap]:
    """Return a map's image, and the product of its transposed Jacobian with a vector."""
    image, product = cast(
        "tuple[torch.Tensor, Callable[[torch.Tensor], tuple[torch.Tensor]]]",
        torch.func.vjp(function, at),
    )
    return image, lambda vector: product(vector)[0]


def _unit(vector: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Divide a vector by its length, in its dtype unless the length overflows it (float16)."""
    divisor = length.to(vector.dtype)
    if divisor.isfinite():
        return vector / divisor
    return (vector.to(length.dtype) / length).to(vector.dtype)


def _length(vector: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm over all entries, 0-d, in float32 or wider."""
    wide = vector.detach().to(torch.promote_types(vector.dtype, torch.float32))
    length: torch.Tensor = torch.linalg.vector_norm(wide)
    return length
