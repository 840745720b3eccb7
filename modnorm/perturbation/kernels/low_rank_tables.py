"""The kernels' tables for a scale map of low-rank noise (`modnorm.perturbation.low_rank`).

One launch draws the factors of all tensors into a scratch buffer. They are small: r rows and
columns of each matrix. The norms follow from them, and the kernels multiply them where they write.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import torch

from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import TensorScale
from modnorm.noise import Block
from modnorm.noise.portable import STEP, PortableNoise, stream_key
from modnorm.perturbation.held_tensor import HeldTensor
from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.launch import (
    ALIGNMENT,
    LaunchSizes,
    MemoryBlock,
    memory_block,
    plan_launches,
    scratch_block,
)
from modnorm.perturbation.low_rank import Factor, LowRankNoise, factors_of


class LowRankTables:
    """The active tensors of one scale map, their parts and the factors of each part."""

    def __init__(
        self,
        active: Sequence[TensorScale],
        rank: int,
        held: Mapping[str, HeldTensor],
        magnitudes: torch.Tensor,
        sizes: LaunchSizes,
    ) -> None:
        self._rank = rank
        self._magnitudes = magnitudes
        self._sizes = sizes
        self._norms = [scale.norm for scale in active]
        tensors = [held[scale.name] for scale in active]
        self._parts = [len(one.tensor.parts) for one in tensors]
        self._factors = _factors(tensors, rank)
        self._places = _places(self._factors)
        device = magnitudes.device
        self._fills = plan_launches(
            [
                (torch.float32, scratch_block(prod(factor.shape), place, index))
                for index, (factor, place) in enumerate(
                    zip(self._factors, self._places, strict=False)
                )
            ],
            sizes.write_blocks,
            device,
        )
        self._pairs = torch.tensor(self._pair_rows(), dtype=torch.int64, device=device)
        self._plans = plan_launches(_product_blocks(tensors), sizes.product_blocks, device)

    def draw(self, seed: int) -> torch.Tensor:
        """Return the factors of a candidate, fp32 [elements of all factors]."""
        keys = [stream_key(PortableNoise.name, seed, one.stream) for one in self._factors]
        device = self._magnitudes.device
        drawn = torch.empty(self._places[-1], dtype=torch.float32, device=device)
        for plan in self._fills:
            launch.fill(
                plan,
                keys=torch.tensor(keys, dtype=torch.int64).to(device),
                magnitudes=self._magnitudes,
                scratch=drawn,
                sizes=self._sizes,
            )
        return drawn

    def norms(self, drawn: torch.Tensor) -> torch.Tensor:
        """Return the norm of each active tensor, fp64 [tensors]; wait for the device."""
        whole = [
            drawn[place : place + prod(factor.shape)].view(factor.shape).to(torch.float64)
            for factor, place in zip(self._factors, self._places, strict=False)
        ]
        pairs = list(zip(whole[::2], whole[1::2], strict=True))
        ends = list(accumulate(self._parts))
        norms = [
            LowRankNoise(pairs[end - count : end]).norm(norm)
            for norm, count, end in zip(self._norms, self._parts, ends, strict=True)
        ]
        return torch.stack(norms).to(drawn.device)

    def write(self, drawn: torch.Tensor, coefficients: torch.Tensor) -> None:
        """Write the candidate with these factors."""
        integers = (drawn / STEP).to(torch.int32)
        for plan in self._plans:
            launch.write_product(
                plan,
                pairs=self._pairs,
                factors=integers,
                rank=self._rank,
                coefficients=coefficients,
                sizes=self._sizes,
            )

    def _pair_rows(self) -> list[tuple[int, int, int, int]]:
        """Return the rows of `pairs`, see `weight_kernels.write_product_kernel`."""
        owners = [index for index, count in enumerate(self._parts) for _ in range(count)]
        return [
            (self._places[2 * pair], self._places[2 * pair + 1], right.shape[1], owner)
            for pair, (owner, right) in enumerate(zip(owners, self._factors[1::2], strict=True))
        ]


def _factors(tensors: Sequence[HeldTensor], rank: int) -> list[Factor]:
    """Return B and A of each part of each tensor, in order."""
    return [
        factor
        for held in tensors
        for part in held.tensor.parts
        for factor in factors_of(part, held.tensor.shape[1], rank)
    ]


def _places(factors: Sequence[Factor]) -> list[int]:
    """Return the first element of each factor in the scratch buffer, and the buffer's length."""
    lengths = (-(-prod(factor.shape) // ALIGNMENT) * ALIGNMENT for factor in factors)
    return list(accumulate(lengths, initial=0))


def _product_blocks(tensors: Sequence[HeldTensor]) -> list[tuple[torch.dtype, MemoryBlock]]:
    """Return the blocks of each part, numbered as elements of the part."""
    blocks, pair = [], 0
    for held in tensors:
        first = 0
        for part in held.tensor.parts:
            last = first + part.rows
            blocks += [(held.dtype, one) for one in _blocks_of_part(held, (first, last), pair)]
            first, pair = last, pair + 1
    return blocks


def _blocks_of_part(held: HeldTensor, rows: tuple[int, int], pair: int) -> list[MemoryBlock]:
    shape = (rows[1] - rows[0], held.tensor.shape[1])
    blocks = []
    for block, storage, base in held.copies:
        low, high = max(rows[0], block.rows[0]), min(rows[1], block.rows[1])
        if low >= high:
            continue
        inside = slice(low - block.rows[0], high - block.rows[0])
        place = Block((low - rows[0], high - rows[0]), block.columns)
        one = memory_block(shape, place, storage[inside], base[inside], pair)
        if one is None or not one.addressable:
            raise IncompatibleError(
                f"the kernels cannot write the memory layout of {held.tensor.name}"
            )
        blocks.append(one)
    return blocks
