"""A Triton kernel that draws `portable-v1`, bit for bit as `modnorm.noise.portable` defines it."""

import torch
import triton
import triton.language as tl

_LANES = 8
"""Elements of a counter."""
COUNT, FEW, LEAST = 4096, 512, 256
"""Counters of a program; if each lane has its own address, which takes registers; for short rows.

Each program copies the table of magnitudes to shared memory. The sizes are for Hopper.
"""
_WARPS = 16


def fill(
    magnitudes: torch.Tensor, out: torch.Tensor, start: int, stride: int, key: tuple[int, int]
) -> None:
    """Draw rows of one tensor's noise; return without waiting for the device.

    Args:
        magnitudes: The 32,768 magnitudes as the bits of 16-bit integers, int16.
        out: Where the noise goes, fp32 [rows, width], contiguous, 16-byte aligned.
        start: Number of the first element in the canonical tensor.
        stride: Distance of the rows in the canonical tensor.
        key: Both key words.
    """
    rows, width = out.shape
    aligned = not any(number % _LANES for number in (start, width, stride if rows > 1 else 0))
    count = COUNT if aligned else FEW
    covering = width // _LANES if aligned else (width + 2 * (_LANES - 1)) // _LANES
    if rows > 1 and covering <= LEAST:
        count = LEAST
    programs = -(-covering // count)
    signed = [word - (word >> 31 << 32) for word in key]
    noise_kernel[(rows * programs,)](
        out,
        magnitudes,
        *signed,
        start,
        stride,
        width,
        programs,
        COUNT=count,
        ALIGNED=aligned,
        num_warps=_WARPS,
    )


@triton.jit(do_not_specialize=["key0", "key1", "programs"])
def noise_kernel(
    out: tl.tensor,
    magnitudes: tl.tensor,
    key0: tl.tensor,
    key1: tl.tensor,
    start: tl.tensor,
    stride: tl.tensor,
    width: tl.tensor,
    programs: tl.tensor,
    COUNT: tl.constexpr,
    ALIGNED: tl.constexpr,
) -> None:
    """Write the noise of rows of `width` elements, as `fill` does.

    The key words are int32 with their bits. Each row has `programs` programs of COUNT counters, a
    power of two. ALIGNED rows begin and end with a whole counter.
    """
    program = tl.program_id(0)
    row = (program // programs).to(tl.int64)
    place = (program % programs).to(tl.int64) * COUNT + tl.arange(0, COUNT)
    lane = tl.arange(0, 8)
    begin = start + row * stride
    block = (begin >> 3) + place
    if ALIGNED:
        column = (place * 8)[:, None] + lane[None, :]
        inside = tl.broadcast_to((place * 8 < width)[:, None], [COUNT, 8])
    else:
        column = (block * 8 - begin)[:, None] + lane[None, :]
        inside = (column >= 0) & (column < width)
    word0 = (block & 0xFFFFFFFF).to(tl.uint32)
    word1 = (block >> 32).to(tl.uint32)
    word2 = tl.zeros_like(word0)
    word3 = tl.zeros_like(word0)
    first = key0.to(tl.uint32)
    second = key1.to(tl.uint32)
    for _ in tl.static_range(10):
        product0 = word0.to(tl.uint64) * 0xD2511F53
        product1 = word2.to(tl.uint64) * 0xCD9E8D57
        word0 = (product1 >> 32).to(tl.uint32) ^ word1 ^ first
        word2 = (product0 >> 32).to(tl.uint32) ^ word3 ^ second
        word1 = product1.to(tl.uint32)
        word3 = product0.to(tl.uint32)
        first = first + 0x9E3779B9
        second = second + 0xBB67AE85
    words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    bits = tl.reshape(tl.join(words & 0xFFFF, words >> 16), [COUNT * 8]).to(tl.int32)
    # Random reads of shared memory cost a few bank conflicts, those of a cache a line each.
    entry = tl.gather(tl.load(magnitudes + tl.arange(0, 32768)), bits & 0x7FFF, 0)
    magnitude = entry.to(tl.int32) & 0xFFFF
    # The integer gets the sign, so that zero has none.
    signed = tl.where(bits > 0x7FFF, -magnitude, magnitude)
    noise = tl.reshape(signed.to(tl.float32) * 0.0001220703125, [COUNT, 8])
    tl.store(out + row * width + column, noise, mask=inside)
