"""`portable-v1` in registers: Gaussian noise from counters (`modnorm.noise.portable`)."""

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
