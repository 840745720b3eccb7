"""Launches of the kernels that read or write weights."""

from collections.abc import Mapping
from types import MappingProxyType

import torch
import triton.language as tl

from modnorm.perturbation.kernels import weight_kernels
from modnorm.perturbation.kernels.launch_plan import LaunchPlan
from modnorm.perturbation.kernels.launch_sizes import LaunchSizes

DTYPES: Mapping[torch.dtype, tl.dtype] = MappingProxyType(
    {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
)
"""Triton's names of the weight dtypes."""

EXACT: Mapping[str, bool] = MappingProxyType({"enable_fp_fusion": False})
"""Compiler options of the kernel that writes weights: no fused multiply-add."""


def write(
    plan: LaunchPlan,
    *,
    keys: torch.Tensor,
    coefficients: torch.Tensor,
    magnitudes: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write the candidate into all blocks of `plan`; see `weight_kernels.write_kernel`."""
    weight_kernels.write_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        keys,
        coefficients,
        magnitudes,
        DTYPE=DTYPES[plan.dtype],
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        SHARED=sizes.shared_table and plan.aligned,
        num_warps=sizes.write_warps,
        **EXACT,
    )


def write_product(  # noqa: PLR0913 - all but the plan by keyword
    plan: LaunchPlan,
    *,
    pairs: torch.Tensor,
    factors: torch.Tensor,
    rank: int,
    coefficients: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write a low-rank candidate into all blocks; see `weight_kernels.write_product_kernel`."""
    weight_kernels.write_product_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        pairs,
        factors,
        coefficients,
        rank,
        DTYPE=DTYPES[plan.dtype],
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.product_warps,
        **EXACT,
    )


def fill(
    plan: LaunchPlan,
    *,
    keys: torch.Tensor,
    magnitudes: torch.Tensor,
    scratch: torch.Tensor,
    sizes: LaunchSizes,
) -> None:
    """Write fp32 noise into `scratch`; see `weight_kernels.fill_kernel`."""
    weight_kernels.fill_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        keys,
        magnitudes,
        scratch,
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        TALL=plan.tall,
        SHARED=sizes.shared_table and plan.aligned,
        num_warps=sizes.write_warps,
    )


def restore(plan: LaunchPlan, sizes: LaunchSizes) -> None:
    """Copy the pristine weights back into all blocks of `plan`."""
    weight_kernels.restore_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        BITS=_bits(plan.dtype),
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.copy_warps,
    )


def compare(plan: LaunchPlan, differs: torch.Tensor, sizes: LaunchSizes) -> None:
    """Set `differs[0]`, int32, to 1 if a weight differs from the pristine one."""
    weight_kernels.compare_kernel[(len(plan.tiles),)](
        plan.tiles,
        plan.views,
        differs,
        BITS=_bits(plan.dtype),
        COUNT=plan.count,
        ROWS=plan.rows,
        ALIGNED=plan.aligned,
        num_warps=sizes.copy_warps,
    )


def _bits(dtype: torch.dtype) -> tl.dtype:
    return tl.int32 if dtype.itemsize == 4 else tl.int16
