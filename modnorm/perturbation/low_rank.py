"""Low-rank noise: each part of a matrix has the noise Z = B A with Gaussian factors.

Definition. A physical tensor has parts: query, key and value of a fused projection are three.
For a candidate with seed `s` and a part `w`, a checkpoint tensor of shape (rows, columns):

1.  B has shape (rows, r) and the noise of stream `w.lora_B`; A has shape (r, columns) and that of
    `w.lora_A`. Both are `portable-v1` with seed `s` (`modnorm.noise.portable`).
2.  Element (i, j) of the noise is `fl32( sum_k B[i, k] * A[k, j] )`: the exact sum, rounded once.

The elements of the factors are `n * 2^-13` with integers |n| <= 35,430. So a product is an integer
below 2^31 times 2^-26, and a sum of 512 of them is below 2^40. Float64 holds all partial sums
exactly. So the order of summation does not matter, nor does a fused multiply-add, and every device
and shard gets the same bits.
"""

from collections.abc import Sequence

import torch

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.geometry.norms import Factors, low_rank_norm
from modnorm.geometry.scale_map import Norm
from modnorm.noise import Block
from modnorm.noise.portable import PortableNoise


def draw_factors(
    part: Part, columns: int, rank: int, *, seed: int, device: torch.device
) -> Factors:
    """Return B and A of a part of the candidate with a seed, both float64."""

    def draw(factor: str, *shape: int) -> torch.Tensor:
        stream, dtype = f"{part.name}.lora_{factor}", torch.float32
        noise = PortableNoise().sample(seed, stream, shape, dtype=dtype, device=device)
        return noise.to(torch.float64)

    return draw("B", part.rows, rank), draw("A", rank, columns)


class LowRankNoise:
    """The noise of one physical tensor."""

    def __init__(self, factors: Sequence[Factors]) -> None:
        self._factors = factors

    @classmethod
    def draw(
        cls, tensor: PhysicalTensor, rank: int, *, seed: int, device: torch.device
    ) -> "LowRankNoise":
        """Return the noise of a matrix of the candidate with a seed."""
        columns = tensor.shape[1]
        return cls(
            [draw_factors(part, columns, rank, seed=seed, device=device) for part in tensor.parts]
        )

    def norm(self, norm: Norm) -> torch.Tensor:
        """Return a norm of the whole tensor's noise, 0-d float64 on the CPU."""
        return low_rank_norm(self._factors, norm)

    def block(self, block: Block) -> torch.Tensor:
        """Return the noise of a block, fp32, new memory."""
        columns = slice(None) if block.columns is None else slice(*block.columns)
        products, start = [], 0
        for left, right in self._factors:
            low, high = (min(max(row - start, 0), len(left)) for row in block.rows)
            products.append(_product(left[low:high], right[:, columns]).to(torch.float32))
            start += len(left)
        return products[0] if len(products) == 1 else torch.cat(products)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply two factors; on some GPUs vLLM's batch-invariant mode has no float64 `@`."""
    total = torch.zeros((len(left), right.shape[1]), dtype=left.dtype, device=left.device)
    for column, row in zip(left.T, right, strict=True):
        total.addcmul_(column.unsqueeze(1), row)
    return total
