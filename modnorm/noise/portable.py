"""`portable-v1`: noise equal bit for bit on every device, in every layout, for any block.

Definition. All integers are unsigned. For a candidate with seed `s` and a physical tensor named
`p`, element `e` being its position in row-major order of the canonical, unsharded shape:

1.  The key is the first 8 bytes of SHA-256 of the UTF-8 text `portable-v1 LF s LF p`. LF is byte
    0x0A and `s` is decimal. Key word 0 is bytes 0-3, key word 1 bytes 4-7, both little-endian.
2.  The block number is `b = e // 8`. The counter is (b mod 2^32, b // 2^32, 0, 0).
3.  Philox4x32-10 of counter and key gives the words (w0, w1, w2, w3).
4.  With `j = e mod 8`, the element's 16 bits are `u = (w[j // 2] >> (16 * (j mod 2))) mod 2^16`.
    So the halves of word 0 come first, low before high, then those of word 1, and so on.
5.  The magnitude is `m = T[u mod 2^15]`, with T as in `modnorm.noise.gaussian`: integers from 0
    to 35,430. The integer `n` is `-m` if bit 15 of `u` is set, otherwise `m`.
6.  The value is `n * 2^-13` in fp32, which is exact. If `m` is 0, the value is +0.
"""

from math import prod

import torch

from modnorm.noise.gaussian import gaussian_table
from modnorm.noise.philox import WORD_MASK, Key, philox4x32, stream_key
from modnorm.noise.protocol import Block
from modnorm.noise.registry import PORTABLE

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
        stream = _Stream(stream_key(self.name, seed, tensor), device)
        row = prod(shape[1:])
        left, right = block.column_range(shape)
        start = block.rows[0] * row + left
        if right - left == row:
            stream.fill_run(start, out.view(-1))
        else:
            stream.fill_rows(start, row, out)
        return out


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
        if not out.numel():
            return
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
