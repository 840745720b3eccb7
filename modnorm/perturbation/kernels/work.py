"""What the kernels work on: tables of blocks of tensors, cut into programs."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import prod

import torch

from modnorm.noise import Block

LANES = 8
"""Elements that one counter gives."""
ALIGNMENT = 16
"""Bytes that the widest access of a thread wants to be aligned to; elements, in a scratch."""
_ACROSS = 16
"""Counters of a row that a program takes where columns lie together."""
_LANES_APART = 8
"""Counters are this many times fewer a program where each lane has an address of its own, which
takes registers."""
_MOST_BLOCKS = 2**31
"""Blocks of a view with rows apart are numbered in 32 bits."""


@dataclass(frozen=True, slots=True)
class Surface:
    """A block of a canonical tensor in memory, as rows of columns; strides are in elements."""

    held: int
    """Address of the first element in the engine's memory, or its place in a scratch buffer."""
    base: int
    """Address of the first element in the pristine copy."""
    start: int
    """Canonical number of the first element."""
    stride: int
    """Canonical distance of rows."""
    rows: int
    columns: int
    held_strides: tuple[int, int]
    base_strides: tuple[int, int]
    tensor: int
    """Index of the tensor's keys and coefficient."""
    tall: bool = False
    """Whether it is scratch memory where columns lie together."""

    @property
    def aligned(self) -> bool:
        """Whether rows are whole counters, each in one piece and fit for wide access."""
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
    def blocks(self) -> int:
        """Counters that cover any row."""
        if self.rows == 1 or self.stride % LANES == 0:
            return -(-(self.start % LANES + self.columns) // LANES)
        return covering(self.columns)

    @property
    def addressable(self) -> bool:
        """Whether the kernels can number its blocks."""
        return self.rows == 1 or self.rows * self.blocks < _MOST_BLOCKS


@dataclass(frozen=True, slots=True)
class Work:
    """One launch: surfaces of one kind and the programs that they are cut into."""

    dtype: torch.dtype
    rows: bool
    """Whether rows lie apart; otherwise each surface is one row."""
    aligned: bool
    tall: bool
    """Whether columns lie together."""
    tiles: torch.Tensor
    """int32 [programs]: the surface of each program."""
    views: torch.Tensor
    """int64 [surfaces, 13]: held address, base address, start, canonical row stride, rows,
    columns, blocks a row, first program, held strides, base strides, tensor."""
    count: int
    """Counters a program."""


def covering(columns: int) -> int:
    """Return the counters that cover `columns` elements wherever they begin."""
    return (columns + 2 * (LANES - 1)) // LANES


def surface(
    shape: tuple[int, ...], block: Block, held: torch.Tensor, base: torch.Tensor, tensor: int
) -> Surface | None:
    """Return a block of a tensor as rows of columns, or None if its strides do not allow it.

    Args:
        shape: Canonical shape of the tensor.
        block: What is held of it.
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
    return Surface(
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


def plan_work(
    surfaces: Iterable[tuple[torch.dtype, Surface]], count: int, device: torch.device
) -> tuple[Work, ...]:
    """Group surfaces into launches, the same for the same surfaces."""
    kinds: dict[tuple[torch.dtype, bool, bool, bool], list[Surface]] = {}
    for dtype, one in surfaces:
        if one.rows and one.columns:
            kinds.setdefault((dtype, one.rows > 1, one.aligned, one.tall), []).append(one)
    return tuple(_work(kind[0], group, count, device) for kind, group in kinds.items())


def tiles_of(programs: Sequence[int], device: torch.device) -> tuple[torch.Tensor, list[int]]:
    """Return the item of each program, int32, and the first program of each item."""
    counts = torch.tensor(programs, dtype=torch.int64)
    items = torch.arange(len(programs), dtype=torch.int32).repeat_interleave(counts)
    first: list[int] = (counts.cumsum(0) - counts).tolist()
    return items.to(device), first


def _work(dtype: torch.dtype, group: Sequence[Surface], count: int, device: torch.device) -> Work:
    if not group[0].aligned:
        count = max(_ACROSS, count // _LANES_APART)
    tiles, first = tiles_of([_programs(one, count) for one in group], device)
    rows = [
        (*astuple(one)[:6], one.blocks, begin, *one.held_strides, *one.base_strides, one.tensor)
        for one, begin in zip(group, first, strict=True)
    ]
    return Work(
        dtype=dtype,
        rows=group[0].rows > 1,
        aligned=group[0].aligned,
        tall=group[0].tall,
        tiles=tiles,
        views=torch.tensor(rows, dtype=torch.int64, device=device),
        count=count,
    )


def _programs(one: Surface, count: int) -> int:
    if one.tall:
        return -(-one.rows // (count // _ACROSS)) * -(-one.blocks // _ACROSS)
    return -(-one.rows * one.blocks // count)


def _strides(memory: torch.Tensor) -> tuple[int, int] | None:
    """Return the strides of rows and columns; None where columns are not one progression."""
    if memory.ndim < 2:
        return 0, (memory.stride(0) if memory.ndim else 1)
    if memory.ndim == 2:
        return memory.stride(0), memory.stride(1)
    if len(memory) and not memory[0].is_contiguous():
        return None
    return memory.stride(0), 1
