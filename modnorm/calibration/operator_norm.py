"""Operator norm of a Jacobian by power iteration (paper, eq. app_power_iteration)."""

from collections.abc import Callable

import torch

FunctionalMap = Callable[[torch.Tensor], torch.Tensor]
"""A smooth map of one activation to one activation."""

FLOOR = 1e-12
"""Lower bound of divisors and estimates."""


def operator_norm(
    function: FunctionalMap, at: torch.Tensor, *, seed: int, iterations: int = 3
) -> torch.Tensor:
    """Estimate the largest local amplification of a unit Euclidean perturbation.

    JVP and VJP are computed in the dtype of the activation, norms in float32 or wider. Apart from
    rounding, the estimate never exceeds the true norm and grows with the iterations. Nothing waits
    for the device.

    Args:
        function: The map f.
        at: Activation x, any shape, floating dtype, any device.
        seed: Seed of the Gaussian start vector, drawn on the device of `at`.
        iterations: Power-iteration steps before the last JVP.

    Returns:
        max(|J_f(x) v|_2, 1e-12), 0-d, on the device of `at`; 1e-12 if a product vanishes earlier.
        Not finite if the map is not finite at `at`.
    """
    push_forward, pull_back = _products(function, at)
    direction = start_vector(at, seed)
    has_vanished = torch.zeros((), dtype=torch.bool, device=at.device)
    for _ in range(iterations):
        for product in (push_forward, pull_back):
            image = product(direction)
            length = _length(image)
            has_vanished |= length <= FLOOR
            direction = _unit(image, length.clamp_min(FLOOR))
    last = _length(push_forward(direction)).clamp_min(FLOOR)
    return torch.where(has_vanished, torch.full_like(last, FLOOR), last)


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
    point = at.detach().requires_grad_()
    image = function(point)
    dummy = torch.zeros_like(image, requires_grad=True)
    pulled = _gradient(image, point, dummy)

    def push_forward(vector: torch.Tensor) -> torch.Tensor:
        return _gradient(pulled, dummy, vector)

    def pull_back(vector: torch.Tensor) -> torch.Tensor:
        return _gradient(image, point, vector)

    return push_forward, pull_back


def _gradient(image: torch.Tensor, at: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the product of a transposed Jacobian with a vector.

    Torch has other kernels for products that keep no graph; profiles would round differently.
    """
    return torch.autograd.grad(image, at, vector, create_graph=True, materialize_grads=True)[0]


def _unit(vector: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Divide a vector by its length, in its dtype unless the length overflows it (float16)."""
    if vector.dtype is not torch.float16:
        return vector / length.to(vector.dtype)
    divisor = length.to(vector.dtype)
    narrow, wide = vector / divisor, (vector.to(length.dtype) / length).to(vector.dtype)
    return torch.where(divisor.isfinite(), narrow, wide)


def _length(vector: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm over all entries, 0-d, in float32 or wider."""
    wide = vector.detach().to(torch.promote_types(vector.dtype, torch.float32))
    length: torch.Tensor = torch.linalg.vector_norm(wide)
    return length
