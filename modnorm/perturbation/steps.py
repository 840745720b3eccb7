"""The update that a step of a lineage adds to weights (`modnorm.perturbation.lineage`)."""

from collections.abc import Callable

import torch

from modnorm.perturbation.lineage import Rounding, Step


def step_update(step: Step, place: int, sample: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """Return the update `u` of some elements of one physical tensor, fp32.

    Products and sums are separate operations, so that no fused multiply-add is used.

    Args:
        step: The step.
        place: Position of the physical tensor in the layout.
        sample: Returns the fp32 noise of a seed for these elements, in new memory.
    """
    total: torch.Tensor | None = None
    for seed, coefficient in zip(step.seeds, step.coefficients, strict=True):
        part = sample(seed)
        if step.amplitudes:
            part.mul_(step.amplitudes[place])
        part.mul_(coefficient)
        total = part if total is None else total.add_(part)
    if total is None:
        raise ValueError("a step has at least one seed")
    return total.mul_(step.rate)


def rounded(values: torch.Tensor, dtype: torch.dtype, rounding: Rounding) -> torch.Tensor:
    """Return fp32 values, rounded to the dtype of the weights if `rounding` is `PUBLISHED`.

    The result is fp32 in both cases.
    """
    if rounding is Rounding.PUBLISHED:
        return values.to(dtype).to(torch.float32)
    return values
