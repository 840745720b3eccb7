"""`portable-v1`: noise equal bit for bit on every device, in every layout, for any block.

Definition. All integers are unsigned. For a candidate with seed `s` and a physical tensor named
`p`, element `e` being its position in row-major order of the canonical, unsharded shape:

1.  The key is the first 8 bytes of SHA-256 of the UTF-8 text `portable-v1 LF s LF p`. LF is byte
    0x0A and `s` is decimal. Key word 0 is bytes 0-3, key word 1 bytes 4-7, both little-endian.
2.  The block number is `b = e // 8`. The counter is (b mod 2^32, b // 2^32, 0, 0).
3.  Philox4x32-10 of counter and key gives the words (w0, w1, w2, w3).
4.  With `j = e mod 8`, the element's 16 bits are `u = (w[j // 2] >> (16 * (j mod 2))) mod 2^16`.
    So the halves of word 0 come first, low before high, then those of word 1, and so on.
5.  The magnitude is `m = T[u mod 2^15]`, with T as in `modnorm.noise.portable`: integers from 0
    to 35,430. The integer `n` is `-m` if bit 15 of `u` is set, otherwise `m`.
6.  The value is `n * 2^-13` in fp32, which is exact. If `m` is 0, the value is +0.
"""

import hashlib
import logging
import struct
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from math import prod
from statistics import NormalDist
from subprocess import CalledProcessError

import numpy as np
import torch

from modnorm.errors import IncompatibleError
from modnorm.noise import PORTABLE
from modnorm.noise.protocol import Block

Words = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Four words of each counter or output, int64 tensors of one shape, values in [0, 2**32)."""

Key = tuple[int, int]
"""Two key words in [0, 2**32)."""

_LOG = logging.getLogger(__name__)

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
    """Return the four output words of each counter after ten rounds, on its device."""
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


STEP = 2.0**-13
"""Spacing of the values; magnitudes are integer multiples of it."""
MAGNITUDES = 2**15
MAGNITUDES_SHA256 = "e5433a1a9e43646c24afda8cce5a435984a058e0bc0e074836168375a878df32"
"""SHA-256 of the 32,768 magnitudes as little-endian int32."""


@cache
def magnitudes() -> tuple[int, ...]:
    """Return the 32,768 magnitudes in units of `STEP`, ascending from 0 to 35,430.

    Magnitude `i` is the quantile Phi^-1(0.5 + (i + 0.5) / 65536), rounded to a multiple of
    2^-13. Every quantile is at least 1e-5 steps from a rounding boundary, a million times the
    error of a correct logarithm. So all machines round to the same table.
    """
    quantile = NormalDist().inv_cdf
    table = tuple(
        round(quantile(0.5 + (index + 0.5) / (2 * MAGNITUDES)) / STEP)
        for index in range(MAGNITUDES)
    )
    if hashlib.sha256(np.array(table, dtype="<i4").tobytes()).hexdigest() != MAGNITUDES_SHA256:
        raise IncompatibleError(
            "the Gaussian quantile table differs from the pinned one", field="population.noise"
        )
    return table


@cache
def gaussian_table(device: torch.device) -> torch.Tensor:
    """Return the value of each 16-bit number: fp32, shape (65536,), read-only by convention.

    The low 15 bits select a magnitude; bit 15 is the sign, 1 for negative. Zero is always +0.
    """
    positive = torch.tensor(magnitudes(), dtype=torch.int32)
    return torch.cat((positive, -positive)).to(torch.float32).mul_(STEP).to(device)


_LANES = 8
"""Elements of one Philox output."""
_CPU_CHUNK = 2**15
"""Counters per thread in a chunk, whose six int64 temporaries fit a level-2 cache."""
_DEVICE_CHUNK = 2**20
"""Counters in a chunk on other devices, so many that launches take little of the time."""


class PortableNoise:
    """Noise from Philox counters and a quantile table, as the module defines it."""

    name = PORTABLE
    portable = True

    def sample(  # noqa: PLR0913 - all of these identify a tensor of a candidate
        self,
        seed: int,
        tensor: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype,  # noqa: ARG002 - part of the protocol; unused here
        device: torch.device,
        block: Block | None = None,
    ) -> torch.Tensor:
        """Return the noise of a block; see `NoiseScheme.sample`."""
        block = block or Block.whole(shape)
        out = torch.empty(block.shape_in(shape), dtype=torch.float32, device=device)
        row = prod(shape[1:])
        left, right = block.column_range(shape)
        rows = out.view(1, -1) if right - left == row else out
        if rows.numel():
            fill = find_kernel(out.device) or fill_plainly
            fill(rows, block.rows[0] * row + left, row, stream_key(self.name, seed, tensor))
        return out


Fill = Callable[[torch.Tensor, int, int, Key], None]
"""Draws fp32 [rows, width] of a tensor, from an element number on, at a distance of the rows."""


@cache
def find_kernel(device: torch.device) -> Fill | None:
    """Return the kernel of a GPU, compiled and checked; None where the plain version must draw."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    try:
        fill = _checked_kernel(device)
    except torch.OutOfMemoryError:  # the kernel is not at fault
        raise
    except (ImportError, OSError, RuntimeError, CalledProcessError) as error:
        _LOG.warning("noise is drawn without a kernel: %s", error)
        return None
    return fill


def _checked_kernel(device: torch.device) -> Fill:
    """Return the kernel; RuntimeError if it does not compile or draws other noise."""
    from triton.errors import TritonError  # noqa: PLC0415 - only with Triton

    from modnorm.noise import kernel  # noqa: PLC0415 - only with Triton

    table = torch.tensor(magnitudes(), dtype=torch.int32).to(torch.int16).to(device)

    def fill(out: torch.Tensor, start: int, stride: int, key: Key) -> None:
        with torch.cuda.device(device):
            kernel.fill(table, out, start, stride, key)

    try:
        fails = differs(fill, device)
    except TritonError as error:
        raise RuntimeError(str(error)) from error
    if fails:
        raise RuntimeError("it draws other noise")
    return fill


_CHECKED = (
    (8, 1, 0, 40_000),
    (3, 1, 0, 5_001),
    (16, 3, 64, 24),
    (16, 3, 4_160, 4_096),
    (5, 3, 37, 21),
    (5, 3, 4_099, 4_090),
    (2**35 + 8, 1, 0, 64),
    (2**35 + 3, 1, 0, 21),
)
"""Starts, rows, distances and widths: aligned and not, in one row and several."""


def differs(fill: Fill, device: torch.device) -> bool:
    """Return whether a kernel draws other noise than the plain version."""
    key = stream_key(PORTABLE, 11, "self-check")
    for start, rows, stride, width in _CHECKED:
        ours, plain = torch.empty((2, rows, width), dtype=torch.float32, device=device)
        fill(ours, start, stride, key)
        fill_plainly(plain, start, stride, key)
        if not torch.equal(ours.view(torch.int32), plain.view(torch.int32)):
            return True
    return False


def fill_plainly(out: torch.Tensor, start: int, stride: int, key: Key) -> None:
    """Draw by torch's own operations; this defines the noise."""
    stream = _Stream(key, out.device)
    if len(out) == 1:
        stream.fill_run(start, out.view(-1))
    else:
        stream.fill_rows(start, stride, out)


class _Stream:
    """The noise of one tensor by element number, generated in chunks."""

    def __init__(self, key: Key, device: torch.device) -> None:
        self._key = key
        self._device = device
        self._table = gaussian_table(device)
        cpu = device.type == "cpu"
        self._chunk = _CPU_CHUNK * torch.get_num_threads() if cpu else _DEVICE_CHUNK
        # CUDA's index_select of a vector converts any index to int64.
        self._index = torch.int32 if cpu else torch.int64

    def fill_run(self, start: int, out: torch.Tensor) -> None:
        """Fill a flat tensor with consecutive elements from `start`."""
        for target in torch.split(out, self._chunk * _LANES):
            skip = start % _LANES
            end = start + target.numel()
            counters = self._range(start // _LANES, -(-end // _LANES))
            bits = self._bits(counters).view(-1)[skip : skip + target.numel()]
            torch.index_select(self._table, 0, bits, out=target)
            start = end

    def fill_rows(self, start: int, stride: int, out: torch.Tensor) -> None:
        """Fill each row of a matrix with consecutive elements from `start + row * stride`."""
        width = out.shape[1]
        counters_a_row = (width + 2 * (_LANES - 1)) // _LANES
        for target in torch.split(out, max(1, self._chunk // counters_a_row)):
            starts = self._range(0, len(target)).mul_(stride).add_(start).unsqueeze(1)
            counters = (starts >> 3) + self._range(0, counters_a_row)
            bits = self._bits(counters.view(-1)).view(len(target), -1)
            if stride % _LANES == 0:
                bits = bits[:, start % _LANES :][:, :width]
            else:
                bits = bits.gather(1, (starts & 7) + self._range(0, width))
            torch.index_select(self._table, 0, bits.reshape(-1), out=target.view(-1))
            start += len(target) * stride

    def _bits(self, counters: torch.Tensor) -> torch.Tensor:
        """Return the eight 16-bit numbers of each counter, shape (counters, 8)."""
        zero = torch.zeros_like(counters)
        words = philox4x32((counters & WORD_MASK, counters >> 32, zero, zero), self._key)
        bits = torch.empty((len(counters), _LANES), dtype=self._index, device=self._device)
        for index, word in enumerate(words):
            torch.bitwise_and(word, 0xFFFF, out=bits[:, 2 * index])
            torch.bitwise_right_shift(word, 16, out=bits[:, 2 * index + 1])
        return bits

    def _range(self, start: int, end: int) -> torch.Tensor:
        return torch.arange(start, end, dtype=torch.int64, device=self._device)
