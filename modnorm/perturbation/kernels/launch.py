"""Launches of the kernels that touch weights."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
import triton.language as tl

from modnorm.perturbation.kernels import writing
from modnorm.perturbation.kernels.tuning import Tuning
from modnorm.perturbation.kernels.work import Work

DTYPES: Mapping[torch.dtype, tl.dtype] = MappingProxyType(
    {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
)
"""Weight dtypes as Triton calls them."""

EXACT: Mapping[str, bool] = MappingProxyType({"enable_fp_fusion": False})
"""Compiler options of the kernel that writes weights: no multiply and add become one."""


def write(
    work: Work,
    *,
    keys: torch.Tensor,
    coefficients: torch.Tensor,
    magnitudes: torch.Tensor,
    tuning: Tuning,
) -> None:
    """Write the candidate into all surfaces of `work`; see `writing.write_kernel`."""
    writing.write_kernel[(len(work.tiles),)](
        work.tiles,
        work.views,
        keys,
        coefficients,
        magnitudes,
        DTYPE=DTYPES[work.dtype],
        COUNT=work.count,
        ROWS=work.rows,
        ALIGNED=work.aligned,
        SHARED=tuning.shared_table and work.aligned,
        num_warps=tuning.write_warps,
        **EXACT,
    )


def fill(
    work: Work,
    *,
    keys: torch.Tensor,
    magnitudes: torch.Tensor,
    scratch: torch.Tensor,
    tuning: Tuning,
) -> None:
    """Write fp32 noise into `scratch`; see `writing.fill_kernel`."""
    writing.fill_kernel[(len(work.tiles),)](
        work.tiles,
        work.views,
        keys,
        magnitudes,
        scratch,
        COUNT=work.count,
        ROWS=work.rows,
        ALIGNED=work.aligned,
        TALL=work.tall,
        SHARED=tuning.shared_table and work.aligned,
        num_warps=tuning.write_warps,
    )


def restore(work: Work, tuning: Tuning) -> None:
    """Copy the pristine weights back into all surfaces of `work`."""
    writing.restore_kernel[(len(work.tiles),)](
        work.tiles,
        work.views,
        BITS=_bits(work.dtype),
        COUNT=work.count,
        ROWS=work.rows,
        ALIGNED=work.aligned,
        num_warps=tuning.copy_warps,
    )


def compare(work: Work, differs: torch.Tensor, tuning: Tuning) -> None:
    """Set `differs[0]`, int32, to 1 where weights are not the pristine ones."""
    writing.compare_kernel[(len(work.tiles),)](
        work.tiles,
        work.views,
        differs,
        BITS=_bits(work.dtype),
        COUNT=work.count,
        ROWS=work.rows,
        ALIGNED=work.aligned,
        num_warps=tuning.copy_warps,
    )


def _bits(dtype: torch.dtype) -> tl.dtype:
    return tl.int32 if dtype.itemsize == 4 else tl.int16
