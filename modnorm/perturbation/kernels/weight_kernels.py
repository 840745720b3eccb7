"""Kernels that write, restore and compare weights, and write noise to scratch memory.

Each program reads its memory block from a table (`modnorm.perturbation.kernels.launch`), so
one launch serves any number of tensors.
"""

import triton
import triton.language as tl


@triton.jit
def values(
    block: tl.tensor,
    key0: tl.tensor,
    key1: tl.tensor,
    magnitudes: tl.tensor,
    COUNT: tl.constexpr,
    SHARED: tl.constexpr,
) -> tl.tensor:
    """Return the noise of whole counters: fp32 [COUNT, 8], element `8 * block + lane`.

    Args:
        block: int64 [COUNT], block numbers.
        key0: First key word, 0-d uint32.
        key1: Second key word.
        magnitudes: Pointer to the 32,768 magnitudes as 16-bit integers.
        COUNT: Number of counters, a power of two.
        SHARED: Copy the table to shared memory, where random reads cost a few bank conflicts.
            Otherwise the level-1 cache serves them, one line after another.
    """
    word0 = (block & 0xFFFFFFFF).to(tl.uint32)
    word1 = (block >> 32).to(tl.uint32)
    word2 = tl.zeros_like(word0)
    word3 = tl.zeros_like(word0)
    for _ in tl.static_range(10):
        product0 = word0.to(tl.uint64) * 0xD2511F53
        product1 = word2.to(tl.uint64) * 0xCD9E8D57
        word0 = (product1 >> 32).to(tl.uint32) ^ word1 ^ key0
        word2 = (product0 >> 32).to(tl.uint32) ^ word3 ^ key1
        word1 = product1.to(tl.uint32)
        word3 = product0.to(tl.uint32)
        key0 = key0 + 0x9E3779B9
        key1 = key1 + 0xBB67AE85
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    bits = tl.reshape(tl.join(words & 0xFFFF, words >> 16), [COUNT * 8]).to(tl.int32)
    index = bits & 0x7FFF
    if SHARED:
        entry = tl.gather(tl.load(magnitudes + tl.arange(0, 32768)), index, 0)
    else:
        entry = tl.load(magnitudes + index)
    magnitude = entry.to(tl.int32) & 0xFFFF
    # The integer gets the sign, so that zero has none.
    signed = tl.where(bits > 0x7FFF, -magnitude, magnitude)
    return tl.reshape(signed.to(tl.float32) * 0.0001220703125, [COUNT, 8])


@triton.jit
def _locate(
    tiles: tl.tensor,
    views: tl.tensor,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Return the block of a program: table row, counter numbers, offsets and mask [COUNT, 8].

    Offsets count elements from the block's first: in the engine's memory and in the pristine copy.
    """
    program = tl.program_id(0)
    view = views + tl.load(tiles + program).to(tl.int64) * 13
    start = tl.load(view + 2)
    stride = tl.load(view + 3)
    rows = tl.load(view + 4)
    columns = tl.load(view + 5)
    blocks = tl.load(view + 6)
    first = tl.load(view + 7)
    lanes = tl.arange(0, COUNT)
    if ROWS:
        # A block has fewer than 2^31 counters; 32-bit division is several times cheaper.
        small = ((program - first) * COUNT + lanes).to(tl.int32)
        row = (small // blocks.to(tl.int32)).to(tl.int64)
        place = (small % blocks.to(tl.int32)).to(tl.int64)
    else:
        place = (program - first) * COUNT + lanes
        row = tl.zeros_like(place)
    lane = tl.arange(0, 8)
    if ALIGNED:
        block = ((start + row * stride) >> 3) + place
        column = (place * 8)[:, None] + lane[None, :]
        here = (place * 8 < columns) & (row < rows)
        inside = tl.broadcast_to(here[:, None], [COUNT, 8])
        held = row[:, None] * tl.multiple_of(tl.load(view + 8), 8) + column
        base = row[:, None] * tl.multiple_of(tl.load(view + 10), 8) + column
    else:
        begin = start + row * stride
        block = (begin >> 3) + place
        column = (block * 8 - begin)[:, None] + lane[None, :]
        inside = (column >= 0) & (column < columns) & (row < rows)[:, None]
        held = row[:, None] * tl.load(view + 8) + column * tl.load(view + 9)
        base = row[:, None] * tl.load(view + 10) + column * tl.load(view + 11)
    return view, block, held, base, inside


@triton.jit
def _pointer(address: tl.tensor, DTYPE: tl.constexpr, ALIGNED: tl.constexpr) -> tl.tensor:
    pointer = address.to(tl.pointer_type(DTYPE))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def _widen(weight: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Return stored weights as fp32; bfloat16 is passed as its bits."""
    if tl.bfloat16 == DTYPE:
        return (weight.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return weight.to(tl.float32)


@triton.jit
def _round(value: tl.tensor, DTYPE: tl.constexpr) -> tl.tensor:
    """Round fp32 to nearest, ties to even; return bfloat16 as its bits.

    The rounding uses integers, since Triton's interpreter truncates to bfloat16 and tests would
    differ from the GPU. No value is NaN, since weights and coefficients are finite.
    """
    if tl.bfloat16 == DTYPE:
        bits = value.to(tl.uint32, bitcast=True)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).to(tl.uint16)
    else:
        return value.to(DTYPE)


@triton.jit
def write_kernel(
    tiles: tl.tensor,
    views: tl.tensor,
    keys: tl.tensor,
    coefficients: tl.tensor,
    magnitudes: tl.tensor,
    DTYPE: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
    SHARED: tl.constexpr,
) -> None:
    """Write round(fl32(base + fl32(coefficient * noise))); launch with `enable_fp_fusion=False`.

    Args:
        tiles: int32, the view of each program.
        views: int64 [blocks, 13], see `LaunchPlan.views`.
        keys: int64 [tensors, 2], key words of this candidate.
        coefficients: fp32 [tensors].
        magnitudes: See `values`.
        DTYPE: Weight dtype.
        COUNT: Counters a program.
        ROWS: Whether rows are separate.
        ALIGNED: Whether each counter's eight elements are at least 16 aligned bytes.
        SHARED: See `values`.
    """
    view, block, held, base, inside = _locate(tiles, views, COUNT, ROWS, ALIGNED)
    tensor = tl.load(view + 12)
    key0 = tl.load(keys + 2 * tensor).to(tl.uint32)
    key1 = tl.load(keys + 2 * tensor + 1).to(tl.uint32)
    STORED: tl.constexpr = tl.uint16 if tl.bfloat16 == DTYPE else DTYPE
    source = _pointer(tl.load(view + 1), STORED, ALIGNED)
    # Weights are read once, so they bypass the level-1 cache, which holds the table.
    weight = _widen(tl.load(source + base, mask=inside, cache_modifier=".cg"), DTYPE)
    noise = values(block, key0, key1, magnitudes, COUNT, SHARED)
    candidate = weight + tl.load(coefficients + tensor) * noise
    target = _pointer(tl.load(view), STORED, ALIGNED)
    tl.store(target + held, _round(candidate, DTYPE), mask=inside)


@triton.jit
def write_product_kernel(
    tiles: tl.tensor,
    views: tl.tensor,
    pairs: tl.tensor,
    factors: tl.tensor,
    coefficients: tl.tensor,
    rank: tl.tensor,
    DTYPE: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Write round(fl32(base + fl32(coefficient * fl32(B A)))); see `perturbation.low_rank`.

    Sums are integers, so they are exact in any order. Launch with `enable_fp_fusion=False`.

    Args:
        tiles: int32, the view of each program.
        views: int64 [blocks, 13], see `LaunchPlan.views`; a view is a block of one part, and its
            last field is the pair of the part.
        pairs: int64 [pairs, 4]: first element of B and of A, columns, index of the coefficient.
        factors: int32, the factors of all parts in units of 2^-13.
        coefficients: fp32 [tensors].
        rank: Columns of B and rows of A.
        DTYPE: Weight dtype.
        COUNT: Counters a program.
        ROWS: Whether rows are separate.
        ALIGNED: Whether each counter's eight elements are at least 16 aligned bytes.
    """
    view, block, held, base, inside = _locate(tiles, views, COUNT, ROWS, ALIGNED)
    pair = pairs + tl.load(view + 12) * 4
    columns = tl.load(pair + 2)
    # One 64-bit division a counter; its eight elements may continue on later rows.
    above = (block * 8) // columns
    across = ((block * 8 - above * columns)[:, None] + tl.arange(0, 8)[None, :]).to(tl.int32)
    below = across // columns.to(tl.int32)
    row = above[:, None] + below
    column = across - below * columns.to(tl.int32)
    left = factors + tl.load(pair) + row * rank
    right = factors + tl.load(pair + 1) + column
    total = tl.zeros([COUNT, 8], dtype=tl.int64)
    for _ in range(rank):
        total += tl.load(left, mask=inside, other=0).to(tl.int64) * tl.load(
            right, mask=inside, other=0
        ).to(tl.int64)
        left += 1
        right += columns
    noise = total.to(tl.float32) * 1.4901161193847656e-08
    STORED: tl.constexpr = tl.uint16 if tl.bfloat16 == DTYPE else DTYPE
    source = _pointer(tl.load(view + 1), STORED, ALIGNED)
    weight = _widen(tl.load(source + base, mask=inside, cache_modifier=".cg"), DTYPE)
    candidate = weight + tl.load(coefficients + tl.load(pair + 3)) * noise
    target = _pointer(tl.load(view), STORED, ALIGNED)
    tl.store(target + held, _round(candidate, DTYPE), mask=inside)


@triton.jit
def fill_kernel(
    tiles: tl.tensor,
    views: tl.tensor,
    keys: tl.tensor,
    magnitudes: tl.tensor,
    scratch: tl.tensor,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
    SHARED: tl.constexpr,
) -> None:
    """Write fp32 noise into `scratch`, at the element in field 0 of each table row."""
    view, block, held, _, inside = _locate(tiles, views, COUNT, ROWS, ALIGNED)
    tensor = tl.load(view + 12)
    key0 = tl.load(keys + 2 * tensor).to(tl.uint32)
    key1 = tl.load(keys + 2 * tensor + 1).to(tl.uint32)
    noise = values(block, key0, key1, magnitudes, COUNT, SHARED)
    target = scratch + tl.multiple_of(tl.load(view), 8)
    tl.store(target + held, noise, mask=inside)


@triton.jit
def restore_kernel(
    tiles: tl.tensor,
    views: tl.tensor,
    BITS: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Copy the pristine weights back; `BITS` is the integer type of their width."""
    view, _, held, base, inside = _locate(tiles, views, COUNT, ROWS, ALIGNED)
    target = _pointer(tl.load(view), BITS, ALIGNED)
    source = _pointer(tl.load(view + 1), BITS, ALIGNED)
    tl.store(target + held, tl.load(source + base, mask=inside), mask=inside)


@triton.jit
def compare_kernel(
    tiles: tl.tensor,
    views: tl.tensor,
    differs: tl.tensor,
    BITS: tl.constexpr,
    COUNT: tl.constexpr,
    ROWS: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Set `differs[0]` to 1 if a weight differs from the pristine one in any bit."""
    view, _, held, base, inside = _locate(tiles, views, COUNT, ROWS, ALIGNED)
    ours = tl.load(_pointer(tl.load(view), BITS, ALIGNED) + held, mask=inside, other=0)
    theirs = tl.load(_pointer(tl.load(view + 1), BITS, ALIGNED) + base, mask=inside, other=0)
    unequal = tl.max(tl.max((ours != theirs).to(tl.int32), axis=1), axis=0)
    tl.store(differs, 1, mask=unequal > 0)
