"""Candidates written by kernels, bit for bit as by `perturbation.candidate_weights`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import prod

import torch

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.errors import IncompatibleError
from modnorm.geometry.norms import natural_norm
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.noise import Block
from modnorm.noise.portable import PortableNoise, magnitudes, stream_key
from modnorm.perturbation.held_tensor import HeldTensor, WeightView, coefficients_of
from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.launch import (
    LaunchSizes,
    MemoryBlock,
    memory_block,
    plan_launches,
    scratch_block,
)
from modnorm.perturbation.kernels.low_rank_tables import LowRankTables
from modnorm.perturbation.low_rank import LowRankNoise

_CACHED_MAPS = 8
"""Scale maps whose tables are cached: an engine alternates between experiments."""


class FusedWeights:
    """Writes candidates of `portable-v1`, restores and compares, in a few launches each.

    Equal coefficients give the weights of the plain version, bit for bit.
    """

    def __init__(self, held: Mapping[str, HeldTensor], sizes: LaunchSizes | None = None) -> None:
        self._held = held
        self._sizes = sizes or LaunchSizes()
        self._device = next(iter(held.values())).device
        self._all_plans = plan_launches(
            [
                (tensor.dtype, block)
                for index, tensor in enumerate(held.values())
                for block in _memory_blocks(tensor, index)
            ],
            self._sizes.copy_blocks,
            self._device,
        )
        table = torch.tensor(magnitudes(), dtype=torch.int32).to(torch.int16)
        self._magnitudes = table.to(self._device)
        self._tables: dict[str, tuple[torch.Tensor, _FullRankTables | LowRankTables]] = {}

    def write(
        self, seed: int, radius: float, scale_map: ScaleMap, resolved: Sequence[float] | None
    ) -> tuple[float, ...]:
        """Write all active tensors; return their coefficients."""
        if not scale_map.active:
            return ()
        with self._on_device():
            scales, tables = self._tables_of(scale_map)
            drawn = tables.draw(seed)
            if resolved is not None:
                tables.write(drawn, self._tensor(resolved, torch.float32))
                return tuple(resolved)
            coefficients = coefficients_of(tables.norms(drawn), scales, radius)
            tables.write(drawn, coefficients)
            return tuple(coefficients.tolist())

    def restore(self) -> None:
        """Copy the pristine weights back."""
        with self._on_device():
            for plan in self._all_plans:
                launch.restore(plan, self._sizes)

    def is_pristine(self) -> bool:
        """Return whether the weights equal the pristine ones bit for bit; wait for the device."""
        differs = torch.zeros(1, dtype=torch.int32, device=self._device)
        with self._on_device():
            for plan in self._all_plans:
                launch.compare(plan, differs, self._sizes)
        return not differs.item()

    def _tables_of(
        self, scale_map: ScaleMap
    ) -> "tuple[torch.Tensor, _FullRankTables | LowRankTables]":
        """Return the scales of the active tensors, fp64, and the tables of the kernels."""
        if scale_map.digest not in self._tables:
            if len(self._tables) == _CACHED_MAPS:
                self._tables.clear()
            scales = self._tensor([scale.scale for scale in scale_map.active], torch.float64)
            self._tables[scale_map.digest] = scales, self._make_tables(scale_map)
        return self._tables[scale_map.digest]

    def _make_tables(self, scale_map: ScaleMap) -> "_FullRankTables | LowRankTables":
        active, rank = scale_map.active, scale_map.rank
        if rank is None:
            return _FullRankTables(active, self._held, self._magnitudes, self._sizes)
        return LowRankTables(active, rank, self._held, self._magnitudes, self._sizes)

    def _tensor(self, values: Sequence[object], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(self._device)

    def _on_device(self) -> AbstractContextManager[object]:
        on_gpu = self._device.type == "cuda"
        return torch.cuda.device(self._device) if on_gpu else nullcontext()


class _FullRankTables:
    """The kernels' tables for a scale map of full rank; they draw noise where they need it."""

    def __init__(
        self,
        active: Sequence[TensorScale],
        held: Mapping[str, HeldTensor],
        table: torch.Tensor,
        sizes: LaunchSizes,
    ) -> None:
        self._active = active
        self._magnitudes = table
        self._sizes = sizes
        device = table.device
        numels = [prod(scale.shape) for scale in active]
        self._fills = [
            plan_launches(
                [(torch.float32, scratch_block(numel, 0, index))], sizes.write_blocks, device
            )
            for index, numel in enumerate(numels)
        ]
        self._scratch = max(
            numel * (scale.norm is not Norm.UNIT)
            for scale, numel in zip(active, numels, strict=True)
        )
        self._plans = plan_launches(
            [
                (held[scale.name].dtype, block)
                for index, scale in enumerate(active)
                for block in _memory_blocks(held[scale.name], index)
            ],
            sizes.write_blocks,
            device,
        )

    def draw(self, seed: int) -> torch.Tensor:
        """Return the keys of a candidate's noise, int64 [tensors, 2]."""
        keys = [stream_key(PortableNoise.name, seed, scale.name) for scale in self._active]
        return torch.tensor(keys, dtype=torch.int64).to(self._magnitudes.device)

    def norms(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the norm of each active tensor, fp32 [tensors]; do not wait for the device."""
        scratch = torch.empty(self._scratch, dtype=torch.float32, device=keys.device)
        norms = []
        for scale, plans in zip(self._active, self._fills, strict=True):
            if scale.norm is Norm.UNIT:
                norms.append(torch.ones((), device=keys.device))
                continue
            for plan in plans:
                launch.fill(
                    plan,
                    keys=keys,
                    magnitudes=self._magnitudes,
                    scratch=scratch,
                    sizes=self._sizes,
                )
            noise = scratch[: prod(scale.shape)].view(scale.shape)
            norms.append(natural_norm(noise, scale.norm))
        return torch.stack(norms)

    def write(self, keys: torch.Tensor, coefficients: torch.Tensor) -> None:
        for plan in self._plans:
            launch.write(
                plan,
                keys=keys,
                coefficients=coefficients,
                magnitudes=self._magnitudes,
                sizes=self._sizes,
            )


def addressable(held: Mapping[str, HeldTensor]) -> bool:
    """Return whether the kernels can write all views of these tensors."""
    devices = {tensor.device for tensor in held.values()}
    shapes = [
        memory_block(tensor.tensor.shape, *copy, 0)
        for tensor in held.values()
        for copy in tensor.copies
    ]
    return len(devices) == 1 and all(one is not None and one.addressable for one in shapes)


def _memory_blocks(held: HeldTensor, index: int) -> list[MemoryBlock]:
    candidates = [memory_block(held.tensor.shape, *copy, index) for copy in held.copies]
    blocks = [block for block in candidates if block is not None and block.addressable]
    if len(blocks) != len(candidates):
        raise IncompatibleError(
            f"the kernels cannot write the memory layout of {held.tensor.name}"
        )
    return blocks


NORM_TOLERANCE = 1e-5
"""Relative difference that another device's order of summation may cause."""
_SEED, _RADIUS, _RANK = 11, 0.5, 5
_CPU = torch.device("cpu")

_BLOCKS: Mapping[tuple[tuple[int, ...], Norm], tuple[Block, ...]] = {
    ((96, 40), Norm.SPECTRAL): (Block((0, 64)), Block((64, 96), (8, 40))),
    ((40, 96), Norm.SPECTRAL): (Block((0, 40), (0, 48)), Block((0, 40), (48, 96))),
    ((37, 21), Norm.SPECTRAL): (Block((1, 37), (3, 21)),),
    ((64, 24), Norm.MAX_ROW): (Block((8, 64)),),
    ((19, 13), Norm.MAX_ROW): (Block((0, 19)),),
    ((32, 16), Norm.FROBENIUS): (Block((0, 32)),),
    ((9, 7), Norm.UNIT): (Block((4, 9)),),
    ((40,), Norm.MAX_ABS): (Block((0, 40)),),
    ((13,), Norm.MAX_ABS): (Block((3, 13)),),
}
"""Held blocks of tensors by shape and norm: aligned, cut by columns, and neither."""


def deviation(
    dtypes: Iterable[torch.dtype], device: torch.device, sizes: LaunchSizes | None = None
) -> str | None:
    """Return how kernels of weight dtypes deviate from the plain version; None if not."""
    faults = (
        _deviation(scale_map, dtype, device, sizes)
        for dtype in dtypes
        for scale_map in (_scale_map(), _low_rank(_scale_map()))
    )
    return next((fault for fault in faults if fault), None)


def _deviation(
    scale_map: ScaleMap, dtype: torch.dtype, device: torch.device, sizes: LaunchSizes | None
) -> str | None:
    base = _base(scale_map, dtype)
    views = {name: _views(tensor, device) for name, tensor in base.items()}
    held = _hold(scale_map, views)
    fused = FusedWeights(held, sizes)
    coefficients = fused.write(_SEED, _RADIUS, scale_map, None)
    rank = "" if scale_map.rank is None else f" of rank {scale_map.rank}"
    if name := _wrong_norm(coefficients, scale_map):
        return f"the norm of {name}{rank} differs"
    if name := _wrong_weight(coefficients, scale_map, base, views):
        return f"weights of {name}{rank} in {dtype} differ"
    return _wrong_copy(fused, held)


def _scale_map() -> ScaleMap:
    rows = tuple(
        TensorScale(
            name=f"{norm.value} {shape}",
            shape=shape,
            group="other",
            role="other",
            layer=None,
            norm=norm,
            mass=1.0,
            base_scale=1.0,
            correction=1.0,
            scale=1.0,
        )
        for shape, norm in _BLOCKS
    )
    return ScaleMap("self_check", "", rows)


def _low_rank(scale_map: ScaleMap) -> ScaleMap:
    """Return the matrices of a scale map whose norms are those of low-rank noise."""
    norms = {Norm.SPECTRAL, Norm.MAX_ROW, Norm.UNIT}
    return replace(
        scale_map, tensors=tuple(row for row in scale_map.tensors if row.norm in norms), rank=_RANK
    )


def _base(scale_map: ScaleMap, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Return weights of all tensors on the CPU, with many magnitudes and both signs."""
    generator = torch.Generator().manual_seed(_SEED)
    return {
        row.name: torch.randn(row.shape, generator=generator).pow(3).to(dtype)
        for row in scale_map.tensors
    }


def _views(tensor: torch.Tensor, device: torch.device) -> list[WeightView]:
    blocks = next(blocks for (shape, _), blocks in _BLOCKS.items() if shape == tuple(tensor.shape))
    return [
        WeightView(block.of(tensor).to(device, copy=True).contiguous(), block) for block in blocks
    ]


def _hold(scale_map: ScaleMap, views: Mapping[str, Sequence[WeightView]]) -> dict[str, HeldTensor]:
    return {row.name: HeldTensor(_tensor(row), views[row.name]) for row in scale_map.tensors}


def _tensor(row: TensorScale) -> PhysicalTensor:
    """Return a tensor of two parts, so that views and parts end at different rows."""
    parts = (Part(f"{row.name} 0", 1), Part(f"{row.name} 1", row.shape[0] - 1))
    return PhysicalTensor(row.name, row.shape, parts)


def _wrong_norm(coefficients: Sequence[float], scale_map: ScaleMap) -> str | None:
    for coefficient, row in zip(coefficients, scale_map.active, strict=True):
        expected = coefficients_of(_norm(row, scale_map.rank), 1.0, _RADIUS).item()
        if not abs(coefficient - expected) <= NORM_TOLERANCE * expected:
            return row.name
    return None


def _wrong_weight(
    coefficients: Sequence[float],
    scale_map: ScaleMap,
    base: Mapping[str, torch.Tensor],
    views: Mapping[str, Sequence[WeightView]],
) -> str | None:
    plain_views = {name: _views(tensor, _CPU) for name, tensor in base.items()}
    plain = _hold(scale_map, plain_views)
    for coefficient, row in zip(coefficients, scale_map.active, strict=True):
        plain[row.name].write(coefficient, _noise(row, scale_map.rank))
        for ours, theirs in zip(views[row.name], plain_views[row.name], strict=True):
            if not torch.equal(_bits(ours), _bits(theirs)):
                return row.name
    return None


def _wrong_copy(fused: FusedWeights, held: Mapping[str, HeldTensor]) -> str | None:
    """Check restore and compare against torch."""
    if fused.is_pristine():
        return "a candidate compares equal to the base"
    fused.restore()
    if not all(tensor.is_pristine() for tensor in held.values()):
        return "restored weights differ from the base"
    return None if fused.is_pristine() else "the base compares unequal to itself"


def _noise(row: TensorScale, rank: int | None) -> Callable[[Block], torch.Tensor]:
    """Return the plain version's noise by block."""
    if rank is not None:
        return _low_rank_noise(row, rank).block
    return partial(_sample, row)


def _norm(row: TensorScale, rank: int | None) -> torch.Tensor:
    if rank is not None:
        return _low_rank_noise(row, rank).norm(row.norm)
    return natural_norm(_sample(row, Block.whole(row.shape)), row.norm)


def _low_rank_noise(row: TensorScale, rank: int) -> LowRankNoise:
    return LowRankNoise.draw(_tensor(row), rank, seed=_SEED, device=_CPU)


def _sample(row: TensorScale, block: Block) -> torch.Tensor:
    return PortableNoise().sample(
        _SEED, row.name, row.shape, dtype=torch.float32, device=_CPU, block=block
    )


def _bits(view: WeightView) -> torch.Tensor:
    integers = {2: torch.int16, 4: torch.int32}[view.storage.element_size()]
    return view.storage.cpu().view(integers)
