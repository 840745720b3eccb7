"""Natural norms of a candidate's noise on the device, for all tensors at once.

Only the power iteration needs the noise of a matrix more than once. It makes nine passes: eight
steps and a last product, and one pass gives both products of a step line by line. There are two
ways to provide the noise nine times. The estimates are for the 1.31 billion elements of linear
maps of Qwen2.5-1.5B on one H200 (4.8 TB/s, about 3e13 integer operations a second):

- Generate it again in registers: about 16 operations an element, 6.3 ms at the full rate of all
  units. The 9 x 1.31 billion random reads of the quantile table take 5 ms more if shared memory
  serves nine a cycle, and 51 ms if a cache serves one.
- Store it as fp32, which is exact: one write and nine reads of 5.24 GB, 10.9 ms. As 16-bit table
  indices it takes half the bytes, 5.5 ms, and the random reads again.

This module stores fp32: its time depends on memory alone. Matrices share a scratch buffer of
bounded size, no larger than the one fp32 tensor that the plain version needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch

from modnorm.geometry.norms import ITERATIONS
from modnorm.geometry.scale_map import Norm, TensorScale
from modnorm.perturbation.kernels import launch, norm_kernels
from modnorm.perturbation.kernels.launch import (
    ALIGNMENT,
    LANES,
    LaunchPlan,
    LaunchSizes,
    MemoryBlock,
    assign_programs,
    covering,
    plan_launches,
)

LONGEST_LINE = 2**14
"""Longest shorter side of a matrix for the power iteration: a line must fit in registers."""
_COMBINED = 1024
"""Partial results in one iteration of combining them."""


class NoiseNorms:
    """The norms of the active tensors of one scale map."""

    def __init__(
        self,
        scales: Sequence[TensorScale],
        device: torch.device,
        magnitudes: torch.Tensor,
        sizes: LaunchSizes,
    ) -> None:
        self._size = len(scales)
        self._device = device
        self._statistics = [
            _Statistic(norm, tensors, device, magnitudes, sizes)
            for norm in (Norm.MAX_ROW, Norm.MAX_ABS, Norm.FROBENIUS)
            for aligned in (True, False)
            if (tensors := [one for one in _of(norm, scales) if one.aligned is aligned])
        ]
        self._matrices = [
            _Matrices(group, device, magnitudes, sizes)
            for group in _groups(_of(Norm.SPECTRAL, scales), sizes)
        ]
        self._scratch = max((group.elements for group in self._matrices), default=0)

    def compute(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the norm of each active tensor, fp32 [tensors], without waiting for the device.

        Args:
            keys: int64 [tensors, 2], key words of the candidate.
        """
        result = torch.ones(self._size, dtype=torch.float32, device=self._device)
        for statistic in self._statistics:
            statistic.compute(keys, result)
        scratch = torch.empty(self._scratch, dtype=torch.float32, device=self._device)
        for group in self._matrices:
            group.compute(keys, scratch, result)
        return result


def supported(scale: TensorScale) -> bool:
    """Return whether the kernels compute the norm of a tensor."""
    if scale.norm is Norm.SPECTRAL:
        return len(scale.shape) == 2 and 0 < min(scale.shape) <= LONGEST_LINE
    return scale.norm is not Norm.MAX_ROW or len(scale.shape) == 2


@dataclass(frozen=True, slots=True)
class _Tensor:
    index: int
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def aligned(self) -> bool:
        """Whether each row is whole counters."""
        return bool(self.shape) and self.shape[-1] % LANES == 0

    @property
    def line(self) -> tuple[int, bool]:
        """The line sizes that a matrix's power iteration is compiled for.

        A power of two that holds a line, and whether a line is whole counters. Other lines are
        read in another order, which rounds their sums differently.
        """
        shorter = min(self.shape)
        return 1 << (shorter - 1).bit_length(), shorter % LANES == 0

    @property
    def transposed(self) -> bool:
        """Whether the noise is stored by columns, so that lines are the shorter side."""
        return self.shape[1] > self.shape[0]


def _of(norm: Norm, scales: Sequence[TensorScale]) -> list[_Tensor]:
    return [
        _Tensor(index, scale.shape) for index, scale in enumerate(scales) if scale.norm is norm
    ]


class _Statistic:
    """Maxima or sums of squares of the tensors of one norm."""

    def __init__(
        self,
        norm: Norm,
        tensors: Sequence[_Tensor],
        device: torch.device,
        magnitudes: torch.Tensor,
        sizes: LaunchSizes,
    ) -> None:
        self._norm = norm
        self._aligned = all(one.aligned for one in tensors)
        self._magnitudes = magnitudes
        self._sizes = sizes
        lines = [self._lines(one) for one in tensors]
        programs = [-(-count // sizes.statistic_lines) for count, _ in lines]
        self._tiles, first = assign_programs(programs, device)
        rows = [
            (
                count,
                width,
                one.numel,
                begin,
                one.index,
                (covering(width) if width % LANES else width // LANES),
            )
            for one, (count, width), begin in zip(tensors, lines, first, strict=True)
        ]
        self._tables = torch.tensor(rows, dtype=torch.int64, device=device)
        self._counts = torch.tensor(programs, dtype=torch.int32, device=device)
        self._partial = torch.empty(len(self._tiles), dtype=torch.float32, device=device)

    def compute(self, keys: torch.Tensor, result: torch.Tensor) -> None:
        absolute, add = self._norm is Norm.MAX_ABS, self._norm is Norm.FROBENIUS
        norm_kernels.statistic_kernel[(len(self._tiles),)](
            self._tiles,
            self._tables,
            keys,
            self._magnitudes,
            self._partial,
            LINES=self._sizes.statistic_lines,
            COUNT=self._sizes.statistic_blocks,
            ABSOLUTE=absolute,
            SUM=add,
            ALIGNED=self._aligned,
            SHARED=self._sizes.shared_table,
            num_warps=self._sizes.write_warps,
        )
        norm_kernels.combine_kernel[(len(self._counts),)](
            self._tables,
            self._counts,
            self._partial,
            result,
            ABSOLUTE=absolute,
            SUM=add,
            WIDTH=_COMBINED,
        )

    def _lines(self, one: _Tensor) -> tuple[int, int]:
        """Return the number of lines and their width: rows for MAX_ROW, else full programs."""
        if self._norm is Norm.MAX_ROW:
            return one.shape[0], one.shape[1]
        width = self._sizes.statistic_blocks * LANES
        return -(-one.numel // width), width


class _Matrices:
    """Matrices with equal line sizes that share the scratch buffer."""

    def __init__(
        self,
        matrices: Sequence[_Tensor],
        device: torch.device,
        magnitudes: torch.Tensor,
        sizes: LaunchSizes,
    ) -> None:
        self._width, self._aligned = matrices[0].line
        self._magnitudes = magnitudes
        self._sizes = sizes
        self._lines = max(1, sizes.power_elements // self._width)
        places = _places(matrices)
        self.elements = places[-1] + matrices[-1].numel
        self._fills = _fills(matrices, places, device, sizes)
        programs = [-(-max(one.shape) // (self._lines * sizes.power_steps)) for one in matrices]
        self._tiles, first = assign_programs(programs, device)
        rows = [
            (place, max(one.shape), min(one.shape), begin, one.index, one.transposed)
            for one, place, begin in zip(matrices, places, first, strict=True)
        ]
        self._tables = torch.tensor(rows, dtype=torch.int64, device=device)
        self._counts = torch.tensor(programs, dtype=torch.int32, device=device)

    def compute(self, keys: torch.Tensor, scratch: torch.Tensor, result: torch.Tensor) -> None:
        for plan in self._fills:
            launch.fill(
                plan, keys=keys, magnitudes=self._magnitudes, scratch=scratch, sizes=self._sizes
            )
        buffers = _PassBuffers(len(self._tiles), len(self._counts), self._width, scratch)
        for step in range(ITERATIONS + 1):
            self._multiply(scratch, buffers, first=step == 0)
            self._advance(buffers, result)

    def _multiply(self, scratch: torch.Tensor, buffers: "_PassBuffers", *, first: bool) -> None:
        """Compute Z^T (Z x) of each matrix."""
        norm_kernels.power_kernel[(len(self._tiles),)](
            self._tiles,
            self._tables,
            scratch,
            buffers.vectors,
            buffers.partial,
            buffers.squares,
            int(first),
            LINES=self._lines,
            STEPS=self._sizes.power_steps,
            WIDTH=self._width,
            ALIGNED=self._aligned,
            num_warps=self._sizes.power_warps,
        )
        columns = min(self._sizes.total_columns, self._width)
        norm_kernels.total_kernel[(len(self._counts), self._width // columns)](
            self._tables,
            self._counts,
            buffers.partial,
            buffers.totals,
            LINES=self._sizes.total_lines,
            COLUMNS=columns,
            WIDTH=self._width,
        )

    def _advance(self, buffers: "_PassBuffers", result: torch.Tensor) -> None:
        """Write the next unit vectors, and the norms of this pass into `result`."""
        norm_kernels.advance_kernel[(len(self._counts),)](
            self._tables,
            self._counts,
            buffers.vectors,
            buffers.totals,
            buffers.squares,
            result,
            LINES=_COMBINED,
            WIDTH=self._width,
            num_warps=self._sizes.power_warps,
        )


class _PassBuffers:
    """The vectors and sums of the power iteration, fp32, on the device of `scratch`."""

    def __init__(self, programs: int, matrices: int, width: int, scratch: torch.Tensor) -> None:
        self.vectors = torch.ones((matrices, width), dtype=torch.float32, device=scratch.device)
        self.partial = scratch.new_empty(programs, width)
        self.squares = scratch.new_empty(programs)
        self.totals = torch.empty_like(self.vectors)


def _groups(matrices: Sequence[_Tensor], sizes: LaunchSizes) -> Iterator[list[_Tensor]]:
    """Yield groups of matrices with equal line sizes that fit the scratch buffer, narrow first.

    So a matrix's compiled kernel, and the rounding of its sums, does not depend on other matrices.
    """
    most = sizes.scratch_bytes // torch.float32.itemsize
    for line in sorted({one.line for one in matrices}):
        group: list[_Tensor] = []
        for one in (one for one in matrices if one.line == line):
            if group and _places([*group, one])[-1] + one.numel > most:
                yield group
                group = []
            group.append(one)
        yield group


def _places(matrices: Sequence[_Tensor]) -> list[int]:
    """Return the first element of each matrix in the scratch buffer."""
    places = [0]
    for one in matrices[:-1]:
        places.append(places[-1] + -(-one.numel // ALIGNMENT) * ALIGNMENT)
    return places


def _fills(
    matrices: Sequence[_Tensor], places: Sequence[int], device: torch.device, sizes: LaunchSizes
) -> tuple[LaunchPlan, ...]:
    blocks = [
        (torch.float32, _scratch_block(one, place))
        for one, place in zip(matrices, places, strict=True)
    ]
    return plan_launches(blocks, sizes.write_blocks, device)


def _scratch_block(one: _Tensor, place: int) -> MemoryBlock:
    rows, columns = one.shape
    tall = one.transposed and rows > 1
    strides = (1, rows) if tall else (0, 1)
    return MemoryBlock(
        held=place,
        base=0,
        start=0,
        stride=columns,
        rows=rows if tall else 1,
        columns=columns if tall else one.numel,
        held_strides=strides,
        base_strides=strides,
        tensor=one.index,
        tall=tall,
    )
