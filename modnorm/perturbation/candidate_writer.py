"""The plain version of a candidate's weights, which defines the results of the kernels."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import torch

from modnorm.geometry.norms import natural_norm
from modnorm.geometry.scale_map import Norm, TensorScale
from modnorm.noise import Block, NoiseScheme
from modnorm.perturbation.coefficients import coefficients_of
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import HeldTensor
from modnorm.perturbation.lineage import Rounding
from modnorm.perturbation.low_rank import LowRankNoise


class CandidateWriter:
    """Writes one candidate, and resolves its coefficients if necessary.

    Args:
        scheme: Its noise scheme.
        descriptor: The candidate.
        rounding: See `HeldTensor.write`.
        rank: Rank of the noise of matrices; None for full rank.
    """

    def __init__(
        self, scheme: NoiseScheme, descriptor: Descriptor, rounding: Rounding, rank: int | None
    ) -> None:
        self._scheme = scheme
        self._rank = rank
        self._rounding = rounding
        self._seed = descriptor.seed
        self._radius = descriptor.radius
        self._coefficients = descriptor.coefficients

    def write(
        self, tensors: Mapping[str, HeldTensor], scales: Sequence[TensorScale]
    ) -> tuple[float, ...]:
        """Write all active tensors; return the coefficients in the order of `scales`."""
        if self._coefficients is not None:
            for scale, coefficient in zip(scales, self._coefficients, strict=True):
                held = tensors[scale.name]
                held.write(coefficient, self._noise(held), self._rounding)
            return self._coefficients
        resolved = [self._resolve_and_write(tensors[scale.name], scale) for scale in scales]
        return tuple(torch.stack(resolved).tolist()) if resolved else ()

    def _resolve_and_write(self, held: HeldTensor, scale: TensorScale) -> torch.Tensor:
        """Write one tensor; return its coefficient, 0-d fp32.

        With noise of full rank it does not wait for the device.
        """
        if self._rank is not None:
            noise = self._low_rank(held, self._rank)
            coefficient = self._coefficient(noise.norm(scale.norm), scale)
            held.write(coefficient.item(), noise.block, self._rounding)
            return coefficient
        if scale.norm is Norm.UNIT:
            one = torch.ones((), dtype=torch.float32, device=held.device)
            coefficient = self._coefficient(one, scale)
            held.write(coefficient, self._noise(held), self._rounding)
            return coefficient
        whole = self._sample(held, None)
        coefficient = self._coefficient(natural_norm(whole, scale.norm), scale)
        held.write(coefficient, partial(cut_noise, whole), self._rounding)
        return coefficient

    def _coefficient(self, norm: torch.Tensor, scale: TensorScale) -> torch.Tensor:
        return coefficients_of(norm, cast("float", scale.scale), self._radius)

    def _noise(self, held: HeldTensor) -> Callable[[Block], torch.Tensor]:
        """Return the noise by block; a portable scheme generates each block alone."""
        if self._rank is not None:
            return self._low_rank(held, self._rank).block
        if self._scheme.portable:
            return partial(self._sample, held)
        return partial(cut_noise, self._sample(held, None))

    def _low_rank(self, held: HeldTensor, rank: int) -> LowRankNoise:
        return LowRankNoise.draw(held.tensor, rank, seed=self._seed, device=held.device)

    def _sample(self, held: HeldTensor, block: Block | None) -> torch.Tensor:
        return sample_noise(self._scheme, held, self._seed, block)


def sample_noise(
    scheme: NoiseScheme, held: HeldTensor, seed: int, block: Block | None
) -> torch.Tensor:
    """Return the noise of a tensor of full rank, or of a block of it, fp32."""
    return scheme.sample(
        seed,
        held.tensor.name,
        held.tensor.shape,
        dtype=held.dtype,
        device=held.device,
        block=block,
    )


def cut_noise(whole: torch.Tensor, block: Block) -> torch.Tensor:
    """Return a block of a whole tensor's noise."""
    return block.of(whole)
