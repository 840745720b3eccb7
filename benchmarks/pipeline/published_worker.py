"""The published loop's changes of vLLM's weights, written anew from facts of its code.

For every tensor noise is drawn again from the seed of the candidate, in the weights' dtype and on
their device. Its norm is measured on a float32 copy, with a synchronisation. The step is added
in place, and subtracted by a repetition with the opposite sign. The allocator's cache is
emptied each time. A copy of the weights is made at the start and never used.
"""

from math import isinf
from typing import TYPE_CHECKING

import torch

from modnorm.engines.vllm.internals.layers import keep_plain_weights

EPSILON = 1e-12
ITERATIONS = 8

# Needed on vLLM's CPU build so that noise reaches the weights; no effect on a GPU.
keep_plain_weights()


class PublishedWorker:
    """A mixin of vLLM's worker class."""

    if TYPE_CHECKING:
        published_scales: dict[str, float] | None
        published_copy: list[torch.Tensor]

        def get_model(self) -> torch.nn.Module:
            """Return vLLM's model."""

    def published_learn(self, scales: dict[str, float] | None) -> int:
        """Store the scale of each tensor, None for isotropic noise, and a copy of the weights."""
        self.published_scales = scales
        self.published_copy = [one.detach().clone() for one in self.get_model().parameters()]
        return len(self.published_copy)

    def published_change(self, seed: int, radius: float, sign: int) -> int:
        """Add the noise of a seed, or subtract it."""
        torch.manual_seed(seed)
        model = self.get_model()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                self._change(name, parameter.data, seed, sign * radius)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        return seed

    def _change(self, name: str, weight: torch.Tensor, seed: int, radius: float) -> None:
        scale = 1.0 if self.published_scales is None else self.published_scales[name]
        if isinf(scale):
            return
        generator = torch.Generator(device=weight.device)
        generator.manual_seed(seed)
        noise = torch.randn(
            weight.shape, dtype=weight.dtype, device=weight.device, generator=generator
        )
        isotropic = self.published_scales is None
        norm = 1.0 if isotropic else max(natural_norm(name, noise), EPSILON)
        weight.add_(noise, alpha=radius / max(scale * norm, EPSILON))


def natural_norm(name: str, noise: torch.Tensor) -> float:
    """Return the norm of noise, chosen by name and rank of the tensor."""
    values = noise.float()
    if values.dim() == 2 and "embed" in name:
        return float(values.norm(dim=1).max().item())
    if values.dim() == 2:
        return _spectral_norm(values)
    return float(values.abs().max().item())


def _spectral_norm(values: torch.Tensor) -> float:
    columns = values.shape[1]
    right = torch.full((columns,), columns**-0.5, device=values.device)
    for _ in range(ITERATIONS):
        left = values @ right
        left = left / left.norm().clamp_min(EPSILON)
        right = values.T @ left
        right = right / right.norm().clamp_min(EPSILON)
    return float((values @ right).norm().item())
