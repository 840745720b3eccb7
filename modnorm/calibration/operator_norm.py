"""Operator norm of a Jacobian by power iteration (paper, eq. app_power_iteration)."""

import threading
from collections.abc import Callable

import torch

FunctionalMap = Callable[[torch.Tensor], torch.Tensor]
"""A smooth map of one activation to one activation."""

FLOOR = 1e-12
"""Smallest norm that anything is divided by, and the smallest estimate."""
_FORWARD_MODE = threading.Lock()
"""torch has one forward-mode level a process: two threads in it would break each other."""


def operator_norm(
    function: FunctionalMap, at: torch.Tensor, *, seed: int, iterations: int = 3
) -> float:
    """Estimate the largest local amplification of a unit Euclidean perturbation.

    JVP/VJP steps are taken in the dtype of the activation; norms are taken in float32 at least.
    Short of rounding, the estimate never exceeds the true norm and grows with the iterations.

    Args:
        function: The map f.
        at: Activation x, any shape, floating dtype, any device.
        seed: Seed of the Gaussian start vector, drawn on the device of `at`.
        iterations: Power-iteration steps before the last JVP.

    Returns:
        max(|J_f(x) v|_2, 1e-12), and 1e-12 at once when a product vanishes on the way. Not
        finite when the map is not finite at `at`.
    """
    pull_back: Callable[[torch.Tensor], tuple[torch.Tensor]] = torch.func.vjp(function, at)[1]
    direction = start_vector(at, seed)
    for _ in range(iterations):
        pushed = _push_forward(function, at, direction)
        length = _length(pushed)
        if length <= FLOOR:
            return FLOOR
        (pulled,) = pull_back(_unit(pushed, length))
        length = _length(pulled)
        if length <= FLOOR:
            return FLOOR
        direction = _unit(pulled, length)
    last = _length(_push_forward(function, at, direction))
    return float(last.clamp_min(FLOOR))


def start_vector(at: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a Gaussian vector of unit length, drawn in the dtype and on the device of `at`."""
    generator = torch.Generator(device=at.device).manual_seed(seed)
    vector = torch.randn(at.shape, generator=generator, dtype=at.dtype, device=at.device)
    return vector / _length(vector).clamp_min(FLOOR).to(at.dtype)


def _push_forward(
    function: FunctionalMap, at: torch.Tensor, direction: torch.Tensor
) -> torch.Tensor:
    with _FORWARD_MODE:
        tangent: torch.Tensor = torch.func.jvp(function, (at,), (direction,))[1]
    return tangent


def _unit(vector: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Divide a vector by its length, in its dtype unless that ends below the length: fp16 does."""
    divisor = length.to(vector.dtype)
    if divisor.isfinite():
        return vector / divisor
    return (vector.to(length.dtype) / length).to(vector.dtype)


def _length(vector: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm over all entries, 0-d, in float32 or wider."""
    wide = vector.detach().to(torch.promote_types(vector.dtype, torch.float32))
    length: torch.Tensor = torch.linalg.vector_norm(wide)
    return length


# The first product has torch parse sources of its own. CPython 3.11 fails with a SystemError when
# two threads parse at once, so that is done here, while modules are imported.
_push_forward(torch.sin, torch.zeros(()), torch.ones(()))
