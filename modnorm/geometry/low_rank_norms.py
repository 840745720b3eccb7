"""Natural norms of products of thin factors, exact without the product itself.

A tensor is a stack of blocks `B A`, one for each of its parts. `A A^T` and `B^T B` are r x r, and
the norms of the product follow from them. The factors are integers times 2^-13 with at most 16
bits (`modnorm.noise.portable`), so float64 holds every element of these matrices exactly.
"""

import math
from collections.abc import Sequence

import torch

from modnorm.geometry.scale_map import Norm

Factors = tuple[torch.Tensor, torch.Tensor]
"""B of shape (rows, r) and A of shape (r, columns), both float64 on one device."""


def low_rank_norm(factors: Sequence[Factors], norm: Norm) -> torch.Tensor:
    """Return a norm of a stack of products, computed in float64.

    `UNIT` is the constant sqrt(r), so that the noise has unit variance.

    Args:
        factors: B and A of each block, from the first row on; all of one rank.
        norm: The norm to compute: `SPECTRAL`, `MAX_ROW` or `UNIT`.

    Returns:
        The norm: 0-d float64 on the CPU.
    """
    match norm:
        case Norm.SPECTRAL:
            return _spectral(factors)
        case Norm.MAX_ROW:
            return torch.stack([_max_row(*pair) for pair in factors]).amax()
        case Norm.UNIT:
            return torch.tensor(math.sqrt(len(factors[0][1])), dtype=torch.float64)
    raise ValueError(f"the norm {norm} of a product of factors is not implemented")


def _spectral(factors: Sequence[Factors]) -> torch.Tensor:
    """Return the largest singular value.

    The stack is `diag(B_1, B_2, ...) A` with all rows of the `A_i` in A. With `S S^T` for the Gram
    matrix of the block diagonal, it has the singular values of `S^T A`.
    """
    roots = [_root((left.T @ left).cpu()) for left, _ in factors]
    root: torch.Tensor = torch.block_diag(*roots)  # type: ignore[no-untyped-call]
    rows = torch.cat([right for _, right in factors])
    gram = (rows @ rows.T).cpu()
    values: torch.Tensor = torch.linalg.eigvalsh(root.T @ gram @ root)
    return values[-1].clamp_min(0).sqrt()


def _max_row(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the largest L2 norm of a row of B A, which is that of B S with `S S^T = A A^T`."""
    root = _root((right @ right.T).cpu()).to(left.device)
    lengths: torch.Tensor = torch.linalg.vector_norm(left @ root, dim=1)
    return lengths.amax().cpu()


def _root(gram: torch.Tensor) -> torch.Tensor:
    """Return S with `S S^T` equal to a Gram matrix, which may be singular."""
    values, vectors = torch.linalg.eigh(gram)
    root: torch.Tensor = vectors * values.clamp_min(0).sqrt()
    return root
