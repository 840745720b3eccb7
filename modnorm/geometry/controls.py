"""Scales of the paper's ablations and controls (table "Settings for the Countdown ablations")."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from modnorm.checkpoint.families import Layout
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import Norm, TensorScale
from modnorm.geometry.scales import Scales, isotropic_scales, masses_and_base_scales, require_mass
from modnorm.geometry.tensor_roles import TensorRole, base_scales, classify
from modnorm.spec import Masses, TargetModules

BLOCK_NORMS = frozenset({"input_norm", "post_attention_norm"})
"""Norms whose denominators `rmsnorm_doubled_scales` doubles: two in each layer."""
_OTHER_NORMS = frozenset({"q_norm", "k_norm", "attention_output_norm", "mlp_output_norm"})
_NOT_LINEAR = frozenset({"embedding", "head"})


def uncorrected_scales(layout: Layout, masses: Masses) -> Scales:
    """Return s_p = s_p^base: masses without sensitivities, so rho_p = 1."""
    rows = masses_and_base_scales(layout, masses)
    require_mass([row.base_scale for row in rows])
    return tuple(replace(row, scale=row.base_scale) for row in rows)


def rmsnorm_doubled_scales(layout: Layout, masses: Masses) -> Scales:
    """Return s_p^base, twice that for the two norms of each layer."""
    rows = uncorrected_scales(layout, masses)
    _require_pre_norm(rows, "rmsnorm_scale_correction")
    return tuple(
        replace(
            row, correction=2.0, scale=None if row.base_scale is None else 2.0 * row.base_scale
        )
        if row.role in BLOCK_NORMS
        else row
        for row in rows
    )


def group_share_scales(layout: Layout, masses: Masses, *, published: bool) -> Scales:
    """Return s_p = m_M / (M_g / number of tensors of g): no layers, no modules, no corrections."""
    roles = classify(layout)
    groups = [_published_group(role) if published else role.group for role in roles]
    sizes, totals = Counter(groups), masses.model_dump()
    allocation = [totals[group] / sizes[group] for group in groups]
    scales = base_scales(allocation)
    require_mass(scales)
    rows = tuple(
        replace(row, mass=mass, base_scale=scale, scale=scale)
        for row, mass, scale in zip(
            masses_and_base_scales(layout, masses), allocation, scales, strict=True
        )
    )
    if published:
        _require_pre_norm(rows, "no_recursive_scaling_published")
    return rows


def natural_norm_scales(layout: Layout) -> Scales:
    """Return scales that give every tensor's perturbation the natural norm R, without masses."""
    return tuple(
        replace(row, norm=role.norm)
        for row, role in zip(isotropic_scales(layout), classify(layout), strict=True)
    )


def frobenius_scales(layout: Layout) -> Scales:
    """Return scales that give every tensor's perturbation the Frobenius norm R."""
    return tuple(replace(row, norm=Norm.FROBENIUS) for row in isotropic_scales(layout))


def masked_scales(
    scales: Scales, group: Literal["attention", "mlp"], *, published: bool = False
) -> Scales:
    """Return the scales of one group and deactivate other tensors, without new shares."""
    if published:
        _require_pre_norm(scales, f"{group}_only_published")
    groups = [_published_group(row) if published else row.group for row in scales]
    masked = tuple(
        row if own == group else _inactive(row) for row, own in zip(scales, groups, strict=True)
    )
    require_mass([row.scale for row in masked])
    return masked


def matrix_scales(scales: Scales, target_modules: TargetModules) -> Scales:
    """Return the scales of matrices and deactivate other tensors, without new shares."""
    excluded = _NOT_LINEAR if target_modules == "all-linear" else frozenset[str]()
    matrices = tuple(
        row if len(row.shape) == 2 and row.group not in excluded else _inactive(row)
        for row in scales
    )
    require_mass([row.base_scale for row in matrices])
    return matrices


def _published_group(row: TensorScale | TensorRole) -> str:
    return "attention" if row.role == "post_attention_norm" else row.group


def _inactive(row: TensorScale) -> TensorScale:
    return replace(row, base_scale=None, correction=1.0, scale=None)


def _require_pre_norm(rows: Sequence[TensorScale], method: str) -> None:
    """Refuse families without the layers of the published control."""
    layers = {row.layer for row in rows if row.layer is not None}
    counts = Counter((row.layer, row.role) for row in rows)
    plain = all(counts[layer, role] == 1 for layer in layers for role in BLOCK_NORMS)
    if not plain or any(row.role in _OTHER_NORMS for row in rows):
        raise InvalidInputError(
            f"{method} is defined only for layers with an input norm and a norm after attention",
            field="method.name",
        )
