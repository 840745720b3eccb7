"""Natural norms of parameter tensors (paper, table "Leaf-module norms")."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from modnorm.geometry.scale_map import Norm

EPSILON = 1e-12
"""Lower bound of norms, which are divisors."""
ITERATIONS = 8
"""Power-iteration steps of the published spectral norm."""


def natural_norm(z: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Return a norm of a tensor of floats: 0-d, of its dtype, on its device, at least 1e-12."""
    return _NORMS[norm](z).clamp_min(EPSILON)


def spectral(z: torch.Tensor, iterations: int = ITERATIONS) -> torch.Tensor:
    """Estimate the largest singular value by power iteration from the all-ones direction.

    The estimate never exceeds the true value. For Gaussian matrices it is a few percent low,
    which is part of the published method.
    """
    columns = z.shape[1]
    right = torch.full((columns,), 1 / math.sqrt(columns), dtype=z.dtype, device=z.device)
    for _ in range(iterations):
        left = _unit(z.mv(right))  # not `@`, which vLLM's batch-invariant mode replaces
        right = _unit(z.T.mv(left))
    return _length(z.mv(right))


def max_row(z: torch.Tensor) -> torch.Tensor:
    """Return the largest L2 norm of a row."""
    return _row_lengths(z).amax()


def max_abs(z: torch.Tensor) -> torch.Tensor:
    """Return the largest absolute entry."""
    return _length(z, order=math.inf)


def frobenius(z: torch.Tensor) -> torch.Tensor:
    """Return the root of the sum of squares, by rows, since one long float32 sum loses digits."""
    return _length(_row_lengths(z.flatten(1)) if z.ndim > 1 else z)


def unit(z: torch.Tensor) -> torch.Tensor:
    """Return 1: isotropic noise is not normalised."""
    return torch.ones((), dtype=z.dtype, device=z.device)


_NORMS: Mapping[Norm, Callable[[torch.Tensor], torch.Tensor]] = {
    Norm.SPECTRAL: spectral,
    Norm.MAX_ROW: max_row,
    Norm.MAX_ABS: max_abs,
    Norm.FROBENIUS: frobenius,
    Norm.UNIT: unit,
}


def _unit(vector: torch.Tensor) -> torch.Tensor:
    return vector / _length(vector).clamp_min(EPSILON)


def _row_lengths(matrix: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = torch.linalg.vector_norm(matrix, dim=1)
    return lengths


def _length(z: torch.Tensor, order: float = 2) -> torch.Tensor:
    length: torch.Tensor = torch.linalg.vector_norm(z, ord=order)
    return length


Factors = tuple[torch.Tensor, torch.Tensor]
"""B of shape (rows, r) and A of shape (r, columns), both float64 on one device."""


def low_rank_norm(factors: Sequence[Factors], norm: Norm) -> torch.Tensor:
    """Return a norm of a stack of products, 0-d float64, computed on the CPU.

    On some GPUs vLLM's batch-invariant mode has no float64 product of matrices. `UNIT` is the
    constant sqrt(r), so that the noise has unit variance.
    """
    match norm:
        case Norm.SPECTRAL:
            return _spectral([(left.cpu(), right.cpu()) for left, right in factors])
        case Norm.MAX_ROW:
            lengths = [_max_row(left.cpu(), right.cpu()) for left, right in factors]
            return torch.stack(lengths).amax()
        case Norm.UNIT:
            return torch.tensor(math.sqrt(len(factors[0][1])), dtype=torch.float64)
    raise ValueError(f"the norm {norm} of a product of factors is not implemented")


def _spectral(factors: Sequence[Factors]) -> torch.Tensor:
    """Return the largest singular value.

    The stack is `diag(B_1, B_2, ...) A` with all rows of the `A_i` in A. With `S S^T` for the Gram
    matrix of the block diagonal, it has the singular values of `S^T A`.
    """
    roots = [_root(left.T @ left) for left, _ in factors]
    root: torch.Tensor = torch.block_diag(*roots)  # type: ignore[no-untyped-call]
    rows = torch.cat([right for _, right in factors])
    gram = rows @ rows.T
    values: torch.Tensor = torch.linalg.eigvalsh(root.T @ gram @ root)
    return values[-1].clamp_min(0).sqrt()


def _max_row(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the largest L2 norm of a row of B A, which is that of B S with `S S^T = A A^T`."""
    root = _root(right @ right.T)
    lengths: torch.Tensor = torch.linalg.vector_norm(left @ root, dim=1)
    return lengths.amax()


def _root(gram: torch.Tensor) -> torch.Tensor:
    """Return S with `S S^T` equal to a Gram matrix, which may be singular."""
    values, vectors = torch.linalg.eigh(gram)
    root: torch.Tensor = vectors * values.clamp_min(0).sqrt()
    return root
