"""Kernels for the natural norms of noise; the launch fixes every order of summation.

Maxima and sums of squares are computed where the noise is generated. The power iteration reads
noise from memory: `long` lines of `short` elements, the shorter side of a matrix along a line. So
one pass over a line gives both products of a step: y = Z x and then Z^T y.
"""

import triton
import triton.language as tl

from modnorm.perturbation.kernels.weight_kernels import values


@triton.jit
def statistic_kernel(
    tiles: tl.tensor,
    tables: tl.tensor,
    keys: tl.tensor,
    magnitudes: tl.tensor,
    partial: tl.tensor,
    LINES: tl.constexpr,
    COUNT: tl.constexpr,
    ABSOLUTE: tl.constexpr,
    SUM: tl.constexpr,
    ALIGNED: tl.constexpr,
    SHARED: tl.constexpr,
) -> None:
    """Reduce `LINES` lines of one tensor to `partial[program]`.

    Args:
        tiles: int32, the table row of each program.
        tables: int64 [tensors, 6]: lines, elements a line, total elements, first program, tensor,
            counters that cover any line.
        keys: int64 [tensors, 2].
        magnitudes: See `values`.
        partial: fp32 [programs].
        LINES: Lines a program.
        COUNT: Counters of a line in one iteration.
        ABSOLUTE: Take the largest magnitude; otherwise sum the squares of each line.
        SUM: Add the lines' sums of squares; otherwise take the largest.
        ALIGNED: Whether lines and tensors are whole counters.
        SHARED: See `values`.
    """
    program = tl.program_id(0)
    table = tables + tl.load(tiles + program).to(tl.int64) * 6
    lines = tl.load(table)
    width = tl.load(table + 1)
    numel = tl.load(table + 2)
    tensor = tl.load(table + 4)
    key0 = tl.load(keys + 2 * tensor).to(tl.uint32)
    key1 = tl.load(keys + 2 * tensor + 1).to(tl.uint32)
    line = (program - tl.load(table + 3)) * LINES + tl.arange(0, LINES)
    begin = line * width
    reach = width if ALIGNED else width + 7
    line_sum = tl.zeros([LINES], dtype=tl.float32)
    for place in range(0, tl.load(table + 5).to(tl.int32), COUNT):
        offset = place + tl.arange(0, COUNT)
        block = tl.reshape((begin >> 3)[:, None] + offset[None, :], [LINES * COUNT])
        noise = values(block, key0, key1, magnitudes, LINES * COUNT, SHARED)
        inside = (block * 8 < numel)[:, None]
        if not ALIGNED:
            element = (block * 8)[:, None] + tl.arange(0, 8)[None, :]
            begins = tl.broadcast_to(begin[:, None], [LINES, COUNT])
            column = element - tl.reshape(begins, [LINES * COUNT])[:, None]
            inside = (column >= 0) & (column < width) & (element < numel)
        noise = tl.where(inside, noise, 0.0)
        if ABSOLUTE:
            reduced = tl.reshape(tl.max(tl.abs(noise), axis=1), [LINES, COUNT])
        else:
            reduced = tl.reshape(tl.sum(noise * noise, axis=1), [LINES, COUNT])
        # Whole counters past the end of a line belong to the next line.
        reduced = tl.where((offset * 8 < reach)[None, :] & (line < lines)[:, None], reduced, 0.0)
        if ABSOLUTE:
            line_sum = tl.maximum(line_sum, tl.max(reduced, axis=1))
        else:
            line_sum += tl.sum(reduced, axis=1)
    if SUM:
        tl.store(partial + program, tl.sum(line_sum, axis=0))
    else:
        tl.store(partial + program, tl.max(line_sum, axis=0))


@triton.jit
def combine_kernel(
    tables: tl.tensor,
    counts: tl.tensor,
    partial: tl.tensor,
    norms: tl.tensor,
    ABSOLUTE: tl.constexpr,
    SUM: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Reduce the partial results of each tensor to its norm; one program a tensor."""
    table = tables + tl.program_id(0) * 6
    first = tl.load(table + 3)
    count = tl.load(counts + tl.program_id(0))
    total = tl.zeros([WIDTH], dtype=tl.float32)
    for place in range(0, count, WIDTH):
        offset = place + tl.arange(0, WIDTH)
        value = tl.load(partial + first + offset, mask=offset < count, other=0.0)
        total = total + value if SUM else tl.maximum(total, value)
    norm = tl.sum(total, axis=0) if SUM else tl.max(total, axis=0)
    tl.store(norms + tl.load(table + 4), norm if ABSOLUTE else tl.sqrt(norm))


@triton.jit
def power_kernel(
    tiles: tl.tensor,
    tables: tl.tensor,
    scratch: tl.tensor,
    vectors: tl.tensor,
    partial: tl.tensor,
    squares: tl.tensor,
    start: tl.tensor,
    LINES: tl.constexpr,
    STEPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Sum Z^T (Z x) and |Z x|^2 over `STEPS * LINES` lines of one matrix.

    Args:
        tiles: int32, the table row of each program.
        tables: int64 [matrices, 6]: first element in `scratch`, long, short, first program,
            tensor, whether the matrix is stored transposed.
        scratch: fp32, the noise.
        vectors: fp32 [matrices, WIDTH], x.
        partial: fp32 [programs, WIDTH].
        squares: fp32 [programs].
        start: Whether this is the first pass; transposed matrices then begin with Z x = 1.
        LINES: Lines in one iteration.
        STEPS: Iterations.
        WIDTH: Power of two, at least the length of any line.
        ALIGNED: Whether lines are multiples of eight elements.
    """
    program = tl.program_id(0)
    matrix = tl.load(tiles + program).to(tl.int64)
    table = tables + matrix * 6
    lines = tl.load(table + 1)
    width = tl.load(table + 2)
    if ALIGNED:
        width = tl.multiple_of(width, 8)
    noise = scratch + tl.multiple_of(tl.load(table), 16)
    column = tl.arange(0, WIDTH)
    vector = tl.load(vectors + matrix * WIDTH + column)
    begin = (program - tl.load(table + 3)) * (LINES * STEPS)
    ones = tl.load(table + 5) * start > 0
    product = tl.zeros([WIDTH], dtype=tl.float32)
    square = tl.zeros([LINES], dtype=tl.float32)
    for step in range(STEPS):
        line = begin + step * LINES + tl.arange(0, LINES)
        inside = (line < lines)[:, None] & (column < width)[None, :]
        z = tl.load(noise + line[:, None] * width + column[None, :], mask=inside, other=0.0)
        along = tl.sum(z * vector[None, :], axis=1)
        along = tl.where(ones, 1.0, along)
        square += along * along
        product += tl.sum(z * along[:, None], axis=0)
    tl.store(partial + program.to(tl.int64) * WIDTH + column, product)
    tl.store(squares + program, tl.sum(square, axis=0))


@triton.jit
def total_kernel(
    tables: tl.tensor,
    counts: tl.tensor,
    partial: tl.tensor,
    totals: tl.tensor,
    LINES: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Sum the partial results of a pass, Z^T (Z x), `COLUMNS` columns a program.

    Args:
        tables: See `power_kernel`.
        counts: int32 [matrices], programs of each matrix.
        partial: fp32 [programs, WIDTH].
        totals: fp32 [matrices, WIDTH].
        LINES: Partial results in one iteration.
        COLUMNS: Columns a program, a divisor of `WIDTH`.
        WIDTH: See `power_kernel`.
    """
    matrix = tl.program_id(0)
    first = tl.load(tables + matrix * 6 + 3)
    count = tl.load(counts + matrix)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for place in range(0, count, LINES):
        offset = place + tl.arange(0, LINES)
        here = partial + (first + offset)[:, None] * WIDTH + column[None, :]
        total += tl.sum(tl.load(here, mask=(offset < count)[:, None], other=0.0), axis=0)
    tl.store(totals + matrix * WIDTH + column, total)


@triton.jit
def advance_kernel(
    tables: tl.tensor,
    counts: tl.tensor,
    vectors: tl.tensor,
    totals: tl.tensor,
    squares: tl.tensor,
    norms: tl.tensor,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write the next unit vector of each matrix and the norm that this pass gives.

    With a unit vector x, the norm is |Z x|. If Z is stored transposed, x is the left vector and
    y = Z^T x the right one before scaling, and the norm is |Z y| / |y|.
    """
    matrix = tl.program_id(0)
    table = tables + matrix * 6
    first = tl.load(table + 3)
    count = tl.load(counts + matrix)
    column = tl.arange(0, WIDTH)
    total = tl.load(totals + matrix * WIDTH + column)
    square = tl.zeros([LINES], dtype=tl.float32)
    for place in range(0, count, LINES):
        offset = place + tl.arange(0, LINES)
        square += tl.load(squares + first + offset, mask=offset < count, other=0.0)
    length = tl.sqrt(tl.sum(total * total, axis=0))
    along = tl.sqrt(tl.sum(square, axis=0))
    tl.store(vectors + matrix * WIDTH + column, total / tl.maximum(length, 1e-12))
    transposed = tl.load(table + 5) > 0
    norm = tl.where(transposed, length / tl.maximum(along, 1e-12), along)
    tl.store(norms + tl.load(table + 4), norm)
