"""Launch plans: tables of memory blocks, each divided among the programs of a launch."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import prod

import torch

from modnorm.noise import Block

LANES = 8
"""Elements of noise that one counter gives."""
ALIGNMENT = 16
"""Alignment of the widest access of a thread: bytes of addresses, elements of scratch."""
_ACROSS = 16
"""Counters of a row that a program takes if columns are contiguous."""
_LANES_APART = 8
"""Divisor of the counters a program if each lane has its own address, which takes registers."""
_MOST_BLOCKS = 2**31
"""Counters of a block with separate rows have 32-bit numbers."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A block of a canonical tensor in memory, as rows of columns; strides count elements."""

    held: int
    """Address of the first element in the engine's memory, or its place in a scratch buffer."""
    base: int
    """Address of the first element in the pristine copy."""
    start: int
    """Canonical number of the first element."""
    stride: int
    """Canonical distance between rows."""
    rows: int
    columns: int
    held_strides: tuple[int, int]
    base_strides: tuple[int, int]
    tensor: int
    """Index of the tensor's keys and coefficient."""
    tall: bool = False
    """Whether it is scratch memory with contiguous columns."""

    @property
    def aligned(self) -> bool:
        """Whether rows are contiguous whole counters whose addresses allow wide access."""
        elements = [self.start, self.columns]
        if self.rows > 1:
            elements.append(self.stride)
        if self.rows > 1 and not self.tall:
            elements += [self.held_strides[0], self.base_strides[0]]
        return (
            (self.tall or self.held_strides[1] == self.base_strides[1] == 1)
            and not any(element % LANES for element in elements)
            and not any(address % ALIGNMENT for address in (self.held, self.base))
        )

    @property
    def counters(self) -> int:
        """Number of counters that cover any row."""
        if self.rows == 1 or self.stride % LANES == 0:
            return -(-(self.start % LANES + self.columns) // LANES)
        return covering(self.columns)

    @property
    def addressable(self) -> bool:
        """Whether the kernels can number its counters."""
        return self.rows == 1 or self.rows * self.counters < _MOST_BLOCKS


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch: memory blocks of one kind and the programs that they are divided among."""

    dtype: torch.dtype
    rows: bool
    """Whether rows are separate; otherwise each block is one row."""
    aligned: bool
    tall: bool
    """Whether columns are contiguous."""
    tiles: torch.Tensor
    """int32 [programs]: the block of each program."""
    views: torch.Tensor
    """int64 [blocks, 13]: held address, base address, start, canonical row stride, rows,
    columns, blocks a row, first program, held strides, base strides, tensor."""
    count: int
    """Counters a program."""


def covering(columns: int) -> int:
    """Return the number of counters that cover `columns` elements from any offset."""
    return (columns + 2 * (LANES - 1)) // LANES


def memory_block(
    shape: tuple[int, ...], block: Block, held: torch.Tensor, base: torch.Tensor, tensor: int
) -> MemoryBlock | None:
    """Return a block of a tensor as rows of columns; None if its strides do not allow it.

    Args:
        shape: Canonical shape of the tensor.
        block: The part of the tensor in memory.
        held: The engine's memory, of the block's shape.
        base: The pristine copy, of the block's shape.
        tensor: Index of the tensor's keys and coefficient.
    """
    length = prod(shape[1:])
    left, right = block.column_range(shape)
    rows, columns = held.shape[0] if held.ndim else 1, right - left
    down, below = _strides(held), _strides(base)
    if down is None or below is None:
        return None
    contiguous = columns == length and held.is_contiguous() and base.is_contiguous()
    if held.ndim < 2 or contiguous:
        rows, columns = 1, rows * columns
    if contiguous:
        down = below = (0, 1)
    return MemoryBlock(
        held=held.data_ptr(),
        base=base.data_ptr(),
        start=block.rows[0] * length + left,
        stride=length,
        rows=rows,
        columns=columns,
        held_strides=down,
        base_strides=below,
        tensor=tensor,
    )


def plan_launches(
    blocks: Iterable[tuple[torch.dtype, MemoryBlock]], count: int, device: torch.device
) -> tuple[LaunchPlan, ...]:
    """Group memory blocks into launches; equal blocks give equal launches."""
    kinds: dict[tuple[torch.dtype, bool, bool, bool], list[MemoryBlock]] = {}
    for dtype, one in blocks:
        if one.rows and one.columns:
            kinds.setdefault((dtype, one.rows > 1, one.aligned, one.tall), []).append(one)
    return tuple(_launch_plan(kind[0], group, count, device) for kind, group in kinds.items())


def assign_programs(
    programs: Sequence[int], device: torch.device
) -> tuple[torch.Tensor, list[int]]:
    """Return the item of each program, int32, and the first program of each item."""
    counts = torch.tensor(programs, dtype=torch.int64)
    items = torch.arange(len(programs), dtype=torch.int32).repeat_interleave(counts)
    first: list[int] = (counts.cumsum(0) - counts).tolist()
    return items.to(device), first


def _launch_plan(
    dtype: torch.dtype, group: Sequence[MemoryBlock], count: int, device: torch.device
) -> LaunchPlan:
    if not group[0].aligned:
        count = max(_ACROSS, count // _LANES_APART)
    tiles, first = assign_programs([_programs(one, count) for one in group], device)
    rows = [
        (*astuple(one)[:6], one.counters, begin, *one.held_strides, *one.base_strides, one.tensor)
        for one, begin in zip(group, first, strict=True)
    ]
    return LaunchPlan(
        dtype=dtype,
        rows=group[0].rows > 1,
        aligned=group[0].aligned,
        tall=group[0].tall,
        tiles=tiles,
        views=torch.tensor(rows, dtype=torch.int64, device=device),
        count=count,
    )


def _programs(one: MemoryBlock, count: int) -> int:
    if one.tall:
        return -(-one.rows // (count // _ACROSS)) * -(-one.counters // _ACROSS)
    return -(-one.rows * one.counters // count)


def _strides(memory: torch.Tensor) -> tuple[int, int] | None:
    """Return the strides of rows and columns; None if columns have no single stride."""
    if memory.ndim < 2:
        return 0, (memory.stride(0) if memory.ndim else 1)
    if memory.ndim == 2:
        return memory.stride(0), memory.stride(1)
    if len(memory) and not memory[0].is_contiguous():
        return None
    return memory.stride(0), 1
