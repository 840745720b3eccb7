"""Philox4x32-10, the counter-based generator of Salmon et al. (SC11), on int64 tensors.

Every word is an unsigned 32-bit integer held in an int64. The product of two such words wraps
modulo 2**64 in two's complement, so an arithmetic shift and a mask give its high word exactly.
"""

import hashlib
import struct

import torch

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Four words of each counter or output, int64 tensors of one shape, values in [0, 2**32)."""

Key = tuple[int, int]
"""Two key words in [0, 2**32)."""

WORD_MASK = 0xFFFF_FFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD251_1F53, 0xCD9E_8D57)
_KEY_STEPS = (0x9E37_79B9, 0xBB67_AE85)


def stream_key(scheme: str, seed: int, name: str = "") -> Key:
    """Return the key of one stream: SHA-256 of `scheme LF seed LF name`, first 8 bytes.

    The text is UTF-8 and the seed decimal. No scheme name contains a line feed, so every stream
    has its own text. Bytes 0-3 are key word 0 and bytes 4-7 key word 1, both little-endian.
    """
    text = f"{scheme}\n{seed}\n{name}"
    first, second = struct.unpack("<II", hashlib.sha256(text.encode()).digest()[:8])
    return first, second


def philox4x32(counter: Words, key: Key) -> Words:
    """Return the four output words of each counter after ten rounds.

    Args:
        counter: Counter words 0 to 3; not modified.
        key: Key words 0 and 1.

    Returns:
        Output words 0 to 3, on the counter's device.
    """
    even0, odd0, even1, odd1 = (word.clone() for word in counter)
    key0, key1 = key
    high = torch.empty_like(even0)
    for _ in range(_ROUNDS):
        product0 = even0.mul_(_MULTIPLIERS[0])
        product1 = even1.mul_(_MULTIPLIERS[1])
        torch.bitwise_right_shift(product1, 32, out=high)
        even0 = odd0.bitwise_xor_(key0).bitwise_xor_(high).bitwise_and_(WORD_MASK)
        torch.bitwise_right_shift(product0, 32, out=high)
        even1 = odd1.bitwise_xor_(key1).bitwise_xor_(high).bitwise_and_(WORD_MASK)
        odd0, odd1 = product1, product0
        key0 = (key0 + _KEY_STEPS[0]) & WORD_MASK
        key1 = (key1 + _KEY_STEPS[1]) & WORD_MASK
    return even0, odd0.bitwise_and_(WORD_MASK), even1, odd1.bitwise_and_(WORD_MASK)
