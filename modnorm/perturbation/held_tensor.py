"""A physical tensor in an engine's memory, and its pristine copy."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from types import MappingProxyType

import torch

from modnorm.checkpoint.families import PhysicalTensor
from modnorm.errors import EngineError, IncompatibleError, InvalidInputError, PreconditionError
from modnorm.noise import Block
from modnorm.perturbation.lineage import Rounding, Step

NORM_FLOOR = 1e-12
"""Lower bound of noise norms, as published."""


def coefficient_of(norm: torch.Tensor, scale: float, radius: float) -> torch.Tensor:
    """Return `float32(R / (s_p * max(norm_p, 1e-12)))`, computed in float64 (paper, app. A).

    It is 0-d and on the norm's device, and nothing waits for it.
    """
    size = norm.to(torch.float64).clamp_min(NORM_FLOOR) * scale
    return torch.full_like(size, radius).div_(size).to(torch.float32)


def step_update(step: Step, place: int, sample: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """Return the update `u` of some elements of one physical tensor, fp32.

    Products and sums are separate operations, so that no fused multiply-add is used.
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
    """Return fp32 values, first rounded to the weight dtype if `rounding` is `PUBLISHED`."""
    if rounding is Rounding.PUBLISHED:
        return values.to(dtype).to(torch.float32)
    return values


_BITS = MappingProxyType(
    {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}
)
"""Weight dtypes of candidates, and integers of the same width."""
_CPU_CHUNK = 2**18
"""Elements per thread in one chunk, so that fp32 temporaries stay in the cores' caches."""
_DEVICE_CHUNK = 2**23
"""Elements in one chunk on other devices."""


@dataclass(frozen=True, slots=True)
class WeightView:
    """A block of a physical tensor and the engine's own memory for it."""

    storage: torch.Tensor
    """The engine's tensor, of the block's shape, with any strides; it is written in place.

    It may be float32 for weights of a narrower dtype, and then holds each weight exactly.
    """
    block: Block
    """Its part of the canonical physical tensor."""


class HeldTensor:
    """A physical tensor, or a shard of it, in one engine's memory, and its pristine copy.

    `views` are disjoint blocks in any order. `dtype` is by default that of the storage.
    """

    def __init__(
        self, tensor: PhysicalTensor, views: Sequence[WeightView], dtype: torch.dtype | None = None
    ) -> None:
        self.tensor = tensor
        self._blocks = [view.block for view in views]
        self._storages = [view.storage.detach() for view in views]
        self._check()
        self.dtype = dtype or self._storages[0].dtype
        self._check_dtype()
        self._pristine = [storage.to(self.dtype, copy=True) for storage in self._storages]
        if not self.is_pristine().item():
            raise IncompatibleError(
                f"{tensor.name} holds NaN, or numbers that {self.dtype} cannot represent",
                field="model.name",
                remedy="use a checkpoint without NaN",
            )

    @property
    def device(self) -> torch.device:
        return self._storages[0].device

    def write(
        self,
        coefficient: float | torch.Tensor,
        noise: Callable[[Block], torch.Tensor],
        rounding: Rounding = Rounding.ONCE,
    ) -> None:
        """Write round(fl32(base + fl32(coefficient * noise))) into the engine's memory.

        Product and sum are separate operations, so that no fused multiply-add is used. The one
        rounding to the weight dtype is to nearest, ties to even; `published` rounds the product,
        too. `coefficient` is exact in float32.
        """
        for block, storage, base in self._chunks():
            candidate = rounded(torch.mul(noise(block), coefficient), self.dtype, rounding)
            storage.copy_(candidate.add_(base).to(self.dtype))

    def rebase(self, origin: torch.Tensor) -> None:
        """Replace pristine copy and weights by a whole tensor in canonical shape and dtype."""
        for block, base in zip(self._blocks, self._pristine, strict=True):
            base.copy_(block.of(origin))
        self.restore()

    def advance(self, update: Callable[[Block], torch.Tensor], rounding: Rounding) -> None:
        """Add an update to the pristine copy, and write the sum to the weights."""
        for block, storage, base in self._chunks():
            base.copy_(rounded(update(block), self.dtype, rounding).add(base))
            storage.copy_(base)

    def restore(self) -> None:
        """Copy the pristine weights back."""
        for storage, base in zip(self._storages, self._pristine, strict=True):
            storage.copy_(base)

    def is_pristine(self) -> torch.Tensor:
        """Return whether the weights in the engine equal the pristine ones bit for bit.

        The answer is 0-d and lies on the device; nothing waits for it.
        """
        answer = torch.ones((), dtype=torch.bool, device=self.device)
        for _, storage, base in self._chunks():
            answer &= _same_bits(storage, base)
        return answer

    def assemble(self) -> torch.Tensor:
        """Return the current weights in canonical shape and weight dtype."""
        shape = self.tensor.shape
        if sum(storage.numel() for storage in self._storages) != self.tensor.numel:
            raise PreconditionError(
                f"the engine holds only a shard of {self.tensor.name}",
                remedy="gather the shards first",
            )
        if len(self._storages) == 1 and self._storages[0].dtype == self.dtype:
            return self._storages[0]
        whole = torch.empty(shape, dtype=self.dtype, device=self.device)
        for block, storage, _ in self._chunks():
            weights = block.of(whole).copy_(storage)
            if not _same_bits(storage, weights).item():
                raise EngineError(
                    f"{self.tensor.name} holds numbers that {self.dtype} cannot represent: "
                    "something else wrote to the weights",
                    remedy="load the model again",
                )
        return whole

    def _chunks(self) -> Iterator[tuple[Block, torch.Tensor, torch.Tensor]]:
        """Yield chunks of rows of each view: block, weights, pristine weights."""
        cpu = self.device.type == "cpu"
        elements = _CPU_CHUNK * torch.get_num_threads() if cpu else _DEVICE_CHUNK
        for block, storage, base in zip(self._blocks, self._storages, self._pristine, strict=True):
            if not storage.ndim:
                yield block, storage, base
                continue
            step = max(1, elements // max(1, prod(storage.shape[1:])))
            first, last = block.rows
            for start in range(first, last, step):
                end = min(start + step, last)
                rows = slice(start - first, end - first)
                yield Block((start, end), block.columns), storage[rows], base[rows]

    def _check(self) -> None:
        if not self._blocks:
            raise IncompatibleError(f"the engine has no view of {self.tensor.name}")
        shape = self.tensor.shape
        for block, storage in zip(self._blocks, self._storages, strict=True):
            try:
                held = block.shape_in(shape)
            except InvalidInputError as error:
                raise self._misfit(error.message) from error
            if held != storage.shape:
                raise self._misfit(f"{block} has shape {tuple(storage.shape)} in the engine")
            if storage.dtype not in _BITS:
                raise self._misfit(f"weights of {storage.dtype} cannot be perturbed")
            if (storage.dtype, storage.device) != (self._storages[0].dtype, self.device):
                raise self._misfit("its views differ in dtype or device")
        for one, other in combinations(self._blocks, 2):
            columns = one.column_range(shape), other.column_range(shape)
            if _overlap(one.rows, other.rows) and _overlap(*columns):
                raise self._misfit(f"{one} and {other} overlap")

    def _check_dtype(self) -> None:
        storage = self._storages[0].dtype
        if self.dtype not in _BITS or storage not in {self.dtype, torch.float32}:
            raise self._misfit(f"{storage} cannot store weights of {self.dtype}")

    def _misfit(self, message: str) -> IncompatibleError:
        return IncompatibleError(f"{self.tensor.name}: {message}")


def _same_bits(storage: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return whether a storage holds exactly these weights, 0-d; widening them is exact."""
    bits = _BITS[storage.dtype]
    return (storage.view(bits) == weights.to(storage.dtype).view(bits)).all()


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])
