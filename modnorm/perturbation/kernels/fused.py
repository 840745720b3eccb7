"""Candidates written by kernels, bit for bit as by `perturbation.candidate_weights`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap, TensorScale
from modnorm.noise.gaussian import magnitudes
from modnorm.noise.philox import stream_key
from modnorm.noise.portable import PortableNoise
from modnorm.perturbation.coefficients import coefficients_of
from modnorm.perturbation.held_tensor import HeldTensor
from modnorm.perturbation.kernels import launch
from modnorm.perturbation.kernels.launch_plan import MemoryBlock, memory_block, plan_launches
from modnorm.perturbation.kernels.launch_sizes import LaunchSizes
from modnorm.perturbation.kernels.low_rank_tables import LowRankTables
from modnorm.perturbation.kernels.noise_norms import NoiseNorms, supported

_CACHED_MAPS = 8
"""Scale maps whose tables are cached: an engine alternates between experiments."""


class FusedWeights:
    """Writes candidates of `portable-v1`, restores and compares, in a few launches each.

    Equal coefficients give the weights of the plain version, bit for bit. The norms of noise are
    sums, which this version adds in another order.

    Args:
        held: All physical tensors, by name.
        sizes: Launch sizes.

    Raises:
        IncompatibleError: the kernels cannot address a view; see `addressable`.
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
        """Write all active tensors; return their coefficients.

        Waits for the device only if `resolved` is None, and with noise of full rank only at the
        end.
        """
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

    def supports(self, scale_map: ScaleMap) -> bool:
        """Return whether the kernels compute all norms of a scale map."""
        return scale_map.rank is not None or all(supported(scale) for scale in scale_map.active)

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
        self._names = [scale.name for scale in active]
        self._magnitudes = table
        self._sizes = sizes
        device = table.device
        self.norms = NoiseNorms(active, device, table, sizes).compute
        self._plans = plan_launches(
            [
                (held[name].dtype, block)
                for index, name in enumerate(self._names)
                for block in _memory_blocks(held[name], index)
            ],
            sizes.write_blocks,
            device,
        )

    def draw(self, seed: int) -> torch.Tensor:
        """Return the keys of a candidate's noise, int64 [tensors, 2]."""
        keys = [stream_key(PortableNoise.name, seed, name) for name in self._names]
        return torch.tensor(keys, dtype=torch.int64).to(self._magnitudes.device)

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
