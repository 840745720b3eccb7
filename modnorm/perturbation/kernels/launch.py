"""Launches of the kernels that read or write weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from math import prod
from types import MappingProxyType

import torch
import triton.language as tl

from modnorm.noise import Block
from modnorm.perturbation.kernels import weight_kernels


@dataclass(frozen=True, slots=True)
class LaunchSizes:
    """Sizes are powers of two; defaults are for Hopper and Qwen2.5-1.5B."""

    shared_table: bool = True
    """Copy the quantile table to shared memory, once a program, so programs are large.

    Otherwise it is read through the level-1 cache.
    """
    write_blocks: int = 4096
    """Counters a program that generates noise, at least 16."""
    write_warps: int = 16
    product_blocks: int = 512
    """Counters a program that multiplies factors, whose sums of 64 bits take registers."""
    product_warps: int = 8
    copy_blocks: int = 1024
    """Counters a program that copies or compares."""
    copy_warps: int = 8


LANES = 8
"""Elements of noise that one counter gives."""
ALIGNMENT = 16
"""Alignment of the widest access of a thread: bytes of addresses, elements of scratch."""
_FEWEST_BLOCKS = 16
"""Least counters of a program."""
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

    @property
    def aligned(self) -> bool:
        """Whether rows are contiguous whole counters whose addresses allow wide access."""
        elements = [self.start, self.columns]
        if self.rows > 1:
            elements += [self.stride, self.held_strides[0], self.base_strides[0]]
        return (
            self.held_strides[1] == self.base_strides[1] == 1
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
    """Return a block of a tensor as rows of columns; None if its strides do not allow it."""
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


def scratch_block(numel: int, place: int, tensor: int) -> MemoryBlock:
    """Return the block of a whole tensor's noise in a scratch buffer."""
    strides = (0, 1)
    return MemoryBlock(place, 0, 0, numel, 1, numel, strides, strides, tensor)


def plan_launches(
    blocks: Iterable[tuple[torch.dtype, MemoryBlock]], count: int, device: torch.device
) -> tuple[LaunchPlan, ...]:
    """Group memory blocks into launches; equal blocks give equal launches."""
    kinds: dict[tuple[torch.dtype, bool, bool], list[MemoryBlock]] = {}
    for dtype, one in blocks:
        if one.rows and one.columns:
            kinds.setdefault((dtype, one.rows > 1, one.aligned), []).append(one)
    return tuple(_launch_plan(kind[0], group, count, device) for kind, group in kinds.items())


def _launch_plan(
    dtype: torch.dtype, group: Sequence[MemoryBlock], count: int, device: torch.device
) -> LaunchPlan:
    if not group[0].aligned:
        count = max(_FEWEST_BLOCKS, count // _LANES_APART)
    programs = torch.tensor([-(-one.rows * one.counters // count) for one in group])
    first = (programs.cumsum(0) - programs).tolist()
    rows = [
        (*astuple(one)[:6], one.counters, begin, *one.held_strides, *one.base_strides, one.tensor)
        for one, begin in zip(group, first, strict=True)
    ]
    return LaunchPlan(
        dtype=dtype,
        rows=group[0].rows > 1,
        aligned=group[0].aligned,
        tiles=torch.arange(len(group), dtype=torch.int32).repeat_interleave(programs).to(device),
        views=torch.tensor(rows, dtype=torch.int64, device=device),
        count=count,
    )


def _strides(memory: torch.Tensor) -> tuple[int, int] | None:
    """Return the strides of rows and columns; None if columns have no single stride."""
    if memory.ndim < 2:
        return 0, (memory.stride(0) if memory.ndim else 1)
    if memory.ndim == 2:
        return memory.stride(0), memory.stride(1)
    if len(memory) and not memory[0].is_contiguous():
        return None
    return memory.stride(0), 1


DTYPES: Mapping[torch.dtype, tl.dtype] = MappingProxyType(
    {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
)
"""Triton's names of the weight dtypes."""

EXACT: Mapping[str, bool] = MappingProxyType({"enable_fp_fusion": False})
"""Compiler options of the kernel that writes weights: no fused multiply-add."""


def write(
    plan: LaunchPlan,
    *,
    keys: torch.Tensor,
    coefficients: torch.Tensor,
    magnitudes: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write the candidate into all blocks of `plan`; see `weight_kernels.write_kernel`."""
    weight_kernels.write_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        keys,
        coefficients,
        magnitudes,
        DTYPE=DTYPES[plan.dtype],
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        SHARED=sizes.shared_table and plan.aligned,
        num_warps=sizes.write_warps,
        **EXACT,
    )


def write_product(  # noqa: PLR0913 - all but the plan by keyword
    plan: LaunchPlan,
    *,
    pairs: torch.Tensor,
    factors: torch.Tensor,
    rank: int,
    coefficients: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write a low-rank candidate into all blocks; see `weight_kernels.write_product_kernel`."""
    weight_kernels.write_product_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        pairs,
        factors,
        coefficients,
        rank,
        DTYPE=DTYPES[plan.dtype],
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.product_warps,
        **EXACT,
    )


def fill(
    plan: LaunchPlan,
    *,
    keys: torch.Tensor,
    magnitudes: torch.Tensor,
    scratch: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write fp32 noise into `scratch`; see `weight_kernels.fill_kernel`."""
    weight_kernels.fill_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        keys,
        magnitudes,
        scratch,
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        SHARED=sizes.shared_table and plan.aligned,
        num_warps=sizes.write_warps,
    )


def restore(plan: LaunchPlan, sizes: LaunchSizes) -> None:
    """Copy the pristine weights back into all blocks of `plan`."""
    weight_kernels.restore_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        BITS=_bits(plan.dtype),
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.copy_warps,
    )


def compare(plan: LaunchPlan, differs: torch.Tensor, sizes: LaunchSizes) -> None:
    """Set `differs[0]`, int32, to 1 if a weight differs from the pristine one."""
    weight_kernels.compare_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        differs,
        BITS=_bits(plan.dtype),
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.copy_warps,
    )


def _bits(dtype: torch.dtype) -> tl.dtype:
    return tl.int32 if dtype.itemsize == 4 else tl.int16
