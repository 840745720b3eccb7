"""Natural norms of a candidate's noise on the device, for all tensors at once.

The power iteration, eight steps of two products and one more, is the one norm that needs the
noise of a matrix more than once: nine passes, as a pass gives both products of a step line by
line. Two ways to have the noise nine times, for the 1.31 billion elements of linear maps of
Qwen2.5-1.5B on one H200 (4.8 TB/s, about 3e13 integer operations a second):

- Make it anew in registers: no bytes; about 16 operations an element, so 6.3 ms at the full rate
  of all units, plus nine times 1.31 billion random reads of the quantile table, which are 5 ms if
  shared memory serves nine a cycle and 51 ms if a cache serves one.
- Keep it as fp32, which is exact: one write and nine reads of 5.24 GB, 10.9 ms. As 16-bit table
  indices: half the bytes, 5.5 ms, and the random reads again.

The second is chosen, in fp32: its time depends on memory alone. Matrices take turns in a scratch
buffer of bounded size, no larger than the one fp32 tensor that the plain version needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch

from modnorm.geometry.norms import ITERATIONS
from modnorm.geometry.scale_map import Norm, TensorScale
from modnorm.perturbation.kernels import launch, norms
from modnorm.perturbation.kernels.tuning import Tuning
from modnorm.perturbation.kernels.work import (
    ALIGNMENT,
    LANES,
    Surface,
    Work,
    covering,
    plan_work,
    tiles_of,
)

LONGEST_LINE = 2**14
"""Shorter side of a matrix that the power iteration takes: a line lies in registers."""
_COMBINED = 1024
"""Partial results at a time when they are combined."""


class NoiseNorms:
    """The norms of the active tensors of one scale map.

    Args:
        scales: The active tensors; a tensor's index among them names its keys.
        device: Where the noise is made.
        magnitudes: The quantile table on the device.
        tuning: Launch sizes.
    """

    def __init__(
        self,
        scales: Sequence[TensorScale],
        device: torch.device,
        magnitudes: torch.Tensor,
        tuning: Tuning,
    ) -> None:
        self._size = len(scales)
        self._device = device
        self._statistics = [
            _Statistic(norm, chosen, device, magnitudes, tuning)
            for norm in (Norm.MAX_ROW, Norm.MAX_ABS, Norm.FROBENIUS)
            for aligned in (True, False)
            if (chosen := [one for one in _of(norm, scales) if one.aligned is aligned])
        ]
        self._matrices = [
            _Matrices(group, device, magnitudes, tuning)
            for group in _groups(_of(Norm.SPECTRAL, scales), tuning)
        ]
        self._scratch = max((group.elements for group in self._matrices), default=0)

    def compute(self, keys: torch.Tensor) -> torch.Tensor:
        """Return the norm of each active tensor, fp32 [tensors], without waiting for the device.

        Args:
            keys: int64 [tensors, 2], key words of the candidate.
        """
        found = torch.ones(self._size, dtype=torch.float32, device=self._device)
        for statistic in self._statistics:
            statistic.compute(keys, found)
        scratch = torch.empty(self._scratch, dtype=torch.float32, device=self._device)
        for group in self._matrices:
            group.compute(keys, scratch, found)
        return found


def supported(scale: TensorScale) -> bool:
    """Whether the kernels compute the norm of a tensor."""
    if scale.norm is Norm.SPECTRAL:
        return len(scale.shape) == 2 and 0 < min(scale.shape) <= LONGEST_LINE
    return scale.norm is not Norm.MAX_ROW or len(scale.shape) == 2


@dataclass(frozen=True, slots=True)
class _Chosen:
    index: int
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def aligned(self) -> bool:
        """Whether whole counters make up each row."""
        return bool(self.shape) and self.shape[-1] % LANES == 0

    @property
    def line(self) -> tuple[int, bool]:
        """Of a matrix, what its power iteration is compiled for.

        A power of two that holds a line, and whether a line is whole counters: others are read in
        another order, so that their sums are rounded otherwise.
        """
        shorter = min(self.shape)
        return 1 << (shorter - 1).bit_length(), shorter % LANES == 0

    @property
    def transposed(self) -> bool:
        """Whether the noise is laid out by columns, so that lines are the shorter side."""
        return self.shape[1] > self.shape[0]


def _of(norm: Norm, scales: Sequence[TensorScale]) -> list[_Chosen]:
    return [
        _Chosen(index, scale.shape) for index, scale in enumerate(scales) if scale.norm is norm
    ]


class _Statistic:
    """Maxima or sums of squares of the tensors of one norm."""

    def __init__(
        self,
        norm: Norm,
        chosen: Sequence[_Chosen],
        device: torch.device,
        magnitudes: torch.Tensor,
        tuning: Tuning,
    ) -> None:
        self._norm = norm
        self._aligned = all(one.aligned for one in chosen)
        self._magnitudes = magnitudes
        self._tuning = tuning
        lines = [self._lines(one) for one in chosen]
        programs = [-(-count // tuning.statistic_lines) for count, _ in lines]
        self._tiles, first = tiles_of(programs, device)
        rows = [
            (count, width, one.numel, begin, one.index, _blocks(width))
            for one, (count, width), begin in zip(chosen, lines, first, strict=True)
        ]
        self._tables = torch.tensor(rows, dtype=torch.int64, device=device)
        self._counts = torch.tensor(programs, dtype=torch.int32, device=device)
        self._partial = torch.empty(len(self._tiles), dtype=torch.float32, device=device)

    def compute(self, keys: torch.Tensor, found: torch.Tensor) -> None:
        """Write the norms into `found`."""
        absolute, add = self._norm is Norm.MAX_ABS, self._norm is Norm.FROBENIUS
        norms.statistic_kernel[(len(self._tiles),)](
            self._tiles,
            self._tables,
            keys,
            self._magnitudes,
            self._partial,
            LINES=self._tuning.statistic_lines,
            COUNT=self._tuning.statistic_blocks,
            ABSOLUTE=absolute,
            SUM=add,
            ALIGNED=self._aligned,
            SHARED=self._tuning.shared_table,
            num_warps=self._tuning.write_warps,
        )
        norms.combine_kernel[(len(self._counts),)](
            self._tables,
            self._counts,
            self._partial,
            found,
            ABSOLUTE=absolute,
            SUM=add,
            WIDTH=_COMBINED,
        )

    def _lines(self, one: _Chosen) -> tuple[int, int]:
        """Return lines and their width: rows where they matter, else whatever fills programs."""
        if self._norm is Norm.MAX_ROW:
            return one.shape[0], one.shape[1]
        width = self._tuning.statistic_blocks * LANES
        return -(-one.numel // width), width


def _blocks(width: int) -> int:
    return covering(width) if width % LANES else width // LANES


class _Matrices:
    """Matrices that share the scratch buffer, all of one kind of line."""

    def __init__(
        self,
        matrices: Sequence[_Chosen],
        device: torch.device,
        magnitudes: torch.Tensor,
        tuning: Tuning,
    ) -> None:
        self._width, self._aligned = matrices[0].line
        self._magnitudes = magnitudes
        self._tuning = tuning
        self._lines = max(1, tuning.power_elements // self._width)
        places = _places(matrices)
        self.elements = places[-1] + matrices[-1].numel
        self._fills = _fills(matrices, places, device, tuning)
        programs = [-(-max(one.shape) // (self._lines * tuning.power_steps)) for one in matrices]
        self._tiles, first = tiles_of(programs, device)
        rows = [
            (place, max(one.shape), min(one.shape), begin, one.index, one.transposed)
            for one, place, begin in zip(matrices, places, first, strict=True)
        ]
        self._tables = torch.tensor(rows, dtype=torch.int64, device=device)
        self._counts = torch.tensor(programs, dtype=torch.int32, device=device)

    def compute(self, keys: torch.Tensor, scratch: torch.Tensor, found: torch.Tensor) -> None:
        """Write the norms into `found`."""
        for work in self._fills:
            launch.fill(
                work,
                keys=keys,
                magnitudes=self._magnitudes,
                scratch=scratch,
                tuning=self._tuning,
            )
        shape = len(self._counts), self._width
        vectors = torch.ones(shape, dtype=torch.float32, device=scratch.device)
        partial = scratch.new_empty(len(self._tiles), self._width)
        squares = scratch.new_empty(len(self._tiles))
        totals = torch.empty_like(vectors)
        columns = min(self._tuning.total_columns, self._width)
        for step in range(ITERATIONS + 1):
            norms.power_kernel[(len(self._tiles),)](
                self._tiles,
                self._tables,
                scratch,
                vectors,
                partial,
                squares,
                int(step == 0),
                LINES=self._lines,
                STEPS=self._tuning.power_steps,
                WIDTH=self._width,
                ALIGNED=self._aligned,
                num_warps=self._tuning.power_warps,
            )
            norms.total_kernel[(len(self._counts), self._width // columns)](
                self._tables,
                self._counts,
                partial,
                totals,
                LINES=self._tuning.total_lines,
                COLUMNS=columns,
                WIDTH=self._width,
            )
            norms.advance_kernel[(len(self._counts),)](
                self._tables,
                self._counts,
                vectors,
                totals,
                squares,
                found,
                LINES=_COMBINED,
                WIDTH=self._width,
                num_warps=self._tuning.power_warps,
            )


def _groups(matrices: Sequence[_Chosen], tuning: Tuning) -> Iterator[list[_Chosen]]:
    """Yield matrices of one kind of line, as many as the scratch buffer holds; narrow ones first.

    So that what a matrix is compiled for, and with it its sums, does not depend on the others.
    """
    most = tuning.scratch_bytes // torch.float32.itemsize
    for line in sorted({one.line for one in matrices}):
        group: list[_Chosen] = []
        for one in (one for one in matrices if one.line == line):
            if group and _places([*group, one])[-1] + one.numel > most:
                yield group
                group = []
            group.append(one)
        yield group


def _places(matrices: Sequence[_Chosen]) -> list[int]:
    """Return where each matrix begins in the scratch buffer."""
    places = [0]
    for one in matrices[:-1]:
        places.append(places[-1] + -(-one.numel // ALIGNMENT) * ALIGNMENT)
    return places


def _fills(
    matrices: Sequence[_Chosen], places: Sequence[int], device: torch.device, tuning: Tuning
) -> tuple[Work, ...]:
    surfaces = [
        (torch.float32, _surface(one, place)) for one, place in zip(matrices, places, strict=True)
    ]
    return plan_work(surfaces, tuning.write_blocks, device)


def _surface(one: _Chosen, place: int) -> Surface:
    rows, columns = one.shape
    apart = one.transposed and rows > 1
    strides = (1, rows) if apart else (0, 1)
    return Surface(
        held=place,
        base=0,
        start=0,
        stride=columns,
        rows=rows if apart else 1,
        columns=columns if apart else one.numel,
        held_strides=strides,
        base_strides=strides,
        tensor=one.index,
        tall=apart,
    )
