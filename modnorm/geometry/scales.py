"""Computation of scales from masses and corrections (paper, sec. 3.2 and app. A.4)."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import Norm, ScaleMap, TensorScale
from modnorm.geometry.tensor_roles import TensorRole, base_scales, classify, tensor_masses
from modnorm.spec import Masses, TargetModules

if TYPE_CHECKING:
    import torch

CLIP = (0.25, 4.0)
"""Bounds of every gain, sensitivity and bond."""
RATIO = (0.5, 2.0)
"""Bounds of rho_p, the layer-relative correction."""


def clip(value: float, low: float, high: float) -> float:
    """Return `min(max(value, low), high)` (paper, eq. app_clip)."""
    return min(max(value, low), high)


Stage = tuple[str, ...]
"""Parallel roles at one position of a branch."""


def _sensitivity(stage: Stage, factors: Mapping[str, float]) -> float:
    """Return the largest factor of a stage's roles; 1 if the layer has none of them."""
    return max((factors[role] for role in stage if role in factors), default=1.0)


@dataclass(frozen=True, slots=True)
class Branch:
    """Attention or MLP, between two points of the residual stream."""

    metric: str
    """Its functional map in a profile, from the first inner stage to the last."""
    entry: Stage
    before: tuple[Stage, ...]
    after: tuple[Stage, ...]
    exit: Stage

    def bond(self, factors: Mapping[str, float]) -> float:
        """Return phi: the map's sensitivity divided by that of its stages, clipped."""
        inner = (_sensitivity(stage, factors) for stage in (*self.before, *self.after))
        return clip(factors[self.metric] / math.prod(inner), *CLIP)

    def corrections(
        self, factors: Mapping[str, float], active: frozenset[str]
    ) -> Iterator[tuple[str, float]]:
        """Yield roles and raw corrections, from the exit upstream."""
        downstream = 1.0
        for stage in (self.exit, *reversed(self.after), None, *reversed(self.before), self.entry):
            if stage is None:
                downstream *= self.bond(factors)
                continue
            for role in stage:
                yield role, downstream
            if active.intersection(stage):
                downstream *= _sensitivity(stage, factors)


ATTENTION = Branch(
    metric="attention_module",
    entry=("input_norm",),
    before=(("qkv",), ("q_norm", "k_norm")),
    after=(("attention_output",),),
    exit=("attention_output_norm",),
)
MLP = Branch(
    metric="mlp_module",
    entry=("post_attention_norm", "pre_feedforward_norm"),
    before=(("gate_up",),),
    after=(("down",),),
    exit=("mlp_output_norm",),
)
BRANCHES = (ATTENTION, MLP)

_INNER_NORMS = frozenset({"q_norm", "k_norm", "attention_output_norm", "mlp_output_norm"})
"""Norms inside a branch; the profile contains their sensitivities."""


def raw_corrections(
    gains: Mapping[str, float],
    sensitivities: Mapping[str, float],
    present: frozenset[str],
    active: frozenset[str],
) -> dict[str, float]:
    """Return r^raw of every role of one layer (paper, table "Raw correction")."""
    metrics = (*(branch.metric for branch in BRANCHES), *(_INNER_NORMS & present))
    values = {**gains, **{metric: sensitivities[metric] for metric in metrics}}
    factors = {name: clip(value, *CLIP) for name, value in values.items()}
    return {
        role: correction
        for branch in BRANCHES
        for role, correction in branch.corrections(factors, active)
    }


def layer_relative(raw: Sequence[float]) -> list[float]:
    """Return rho of one layer's perturbed tensors (paper, eq. app_final_scale)."""
    middle = median(raw) if raw else 1.0
    return [clip(value / middle, *RATIO) for value in raw]


def linear_gain(weight: "torch.Tensor") -> float:
    """Return lambda(W) = sqrt(d_in / d_out) * sigma_max(W) (eq. app_linear_gain).

    The norm is computed in the dtype of the weight and rounded to float32. Sums of float64 are
    exact enough that every processor returns the same number.
    """
    from modnorm.geometry.norms import natural_norm  # noqa: PLC0415 - loads torch

    rows, columns = weight.shape
    return math.sqrt(columns / rows) * natural_norm(weight, Norm.SPECTRAL).float().item()


Scales = tuple[TensorScale, ...]
"""The rows of a scale map, one for each physical tensor, in canonical order."""


def inactive_scales(layout: Layout) -> Scales:
    """Return scales that perturb nothing."""
    return tuple(
        TensorScale(
            name=tensor.name,
            shape=tensor.shape,
            group=role.group,
            role=role.role,
            layer=role.layer,
            norm=role.norm,
            mass=0.0,
            base_scale=None,
            correction=1.0,
            scale=None,
        )
        for tensor, role in zip(layout, classify(layout), strict=True)
    )


def natural_norm_scales(layout: Layout) -> Scales:
    """Return scales that give every tensor's perturbation the natural norm R, without masses."""
    return tuple(replace(row, base_scale=1.0, scale=1.0) for row in inactive_scales(layout))


def isotropic_scales(layout: Layout) -> Scales:
    """Return scales with one factor for all tensors: RandOpt has no norms and no masses."""
    return tuple(replace(row, norm=Norm.UNIT) for row in natural_norm_scales(layout))


def frobenius_scales(layout: Layout) -> Scales:
    """Return scales that give every tensor's perturbation the Frobenius norm R."""
    return tuple(replace(row, norm=Norm.FROBENIUS) for row in natural_norm_scales(layout))


def uncorrected_scales(layout: Layout, masses: Masses) -> Scales:
    """Return s_p = s_p^base: masses without sensitivities, so rho_p = 1."""
    return _allocated(layout, tensor_masses(classify(layout), masses))


def _allocated(layout: Layout, masses: Sequence[float]) -> Scales:
    """Return the base scales of a mass for each tensor."""
    return _require_active(
        tuple(
            replace(row, mass=mass, base_scale=scale, scale=scale)
            for row, mass, scale in zip(
                inactive_scales(layout), masses, base_scales(masses), strict=True
            )
        )
    )


def modular_scales(
    layout: Layout,
    *,
    masses: Masses,
    read: "Callable[[PhysicalTensor], torch.Tensor]",
    sensitivities: Sequence[Mapping[str, float]],
) -> Scales:
    """Return the full scales s_p = s_p^base * rho_p (paper, eq. app_final_scale)."""
    rows = uncorrected_scales(layout, masses)
    layers = len({row.layer for row in rows if row.layer is not None})
    if layers != len(sensitivities):
        raise InvalidInputError(
            f"the profile has {len(sensitivities)} layers, the model {layers}",
            field="method.profile",
        )
    gains: dict[int, dict[str, float]] = {}
    for tensor, row in zip(layout, rows, strict=True):
        if row.layer is not None and row.norm is Norm.SPECTRAL:
            gain = linear_gain(read(tensor).double())
            if not math.isfinite(gain):
                raise InvalidInputError(
                    f"{tensor.name} holds NaN or infinity",
                    field="model.name",
                    remedy="use a checkpoint without NaN and infinity",
                )
            gains.setdefault(row.layer, {})[row.role] = gain
    corrections = _corrections(rows, gains, sensitivities)
    return tuple(_corrected(row, corrections.get(row.name, 1.0)) for row in rows)


def _corrections(
    rows: Scales,
    gains: Mapping[int, Mapping[str, float]],
    sensitivities: Sequence[Mapping[str, float]],
) -> dict[str, float]:
    """Return rho of every perturbed tensor of a layer (paper, eq. app_final_scale)."""
    corrections: dict[str, float] = {}
    for layer, measured in enumerate(sensitivities):
        members = [row for row in rows if row.layer == layer]
        perturbed = [row for row in members if row.scale is not None]
        raw = raw_corrections(
            gains[layer],
            measured,
            present=frozenset(row.role for row in members),
            active=frozenset(row.role for row in perturbed),
        )
        ratios = layer_relative([raw[row.role] for row in perturbed])
        corrections.update(zip((row.name for row in perturbed), ratios, strict=True))
    return corrections


def _corrected(row: TensorScale, correction: float) -> TensorScale:
    """Return an uncorrected row with a correction of its scale."""
    scale = None if row.base_scale is None else row.base_scale * correction
    return replace(row, correction=correction, scale=scale)


def scale_table(scale_map: ScaleMap, radius: float) -> dict[str, dict[str, object]]:
    """Return a description of a scale map, one entry for each tensor.

    `radius_over_scale` is the natural norm of a perturbation with that radius. Scales and
    correction of a tensor that is not perturbed are None.
    """
    return {
        tensor.name: {
            "shape": list(tensor.shape),
            "group": tensor.group,
            "role": tensor.role,
            "mass": tensor.mass,
            "base_scale": tensor.base_scale,
            "correction": None if tensor.scale is None else tensor.correction,
            "scale": tensor.scale,
            "radius_over_scale": None if tensor.scale is None else radius / tensor.scale,
        }
        for tensor in scale_map.tensors
    }


BLOCK_NORMS = frozenset({"input_norm", "post_attention_norm"})
"""Norms whose denominators `rmsnorm_doubled_scales` doubles: two in each layer."""
_NOT_LINEAR = frozenset({"embedding", "head"})


def rmsnorm_doubled_scales(layout: Layout, masses: Masses) -> Scales:
    """Return s_p^base, twice that for the two norms of each layer."""
    rows = uncorrected_scales(layout, masses)
    _require_pre_norm(rows, "rmsnorm_scale_correction")
    return tuple(_corrected(row, 2.0) if row.role in BLOCK_NORMS else row for row in rows)


def group_share_scales(layout: Layout, masses: Masses, *, published: bool) -> Scales:
    """Return s_p = m_M / (M_g / number of tensors of g): no layers, no modules, no corrections."""
    roles = classify(layout)
    groups = [_published_group(role) if published else role.group for role in roles]
    sizes, totals = Counter(groups), masses.model_dump()
    scales = _allocated(layout, [totals[group] / sizes[group] for group in groups])
    if published:
        _require_pre_norm(scales, "no_recursive_scaling_published")
    return scales


def masked_scales(
    scales: Scales, group: Literal["attention", "mlp"], *, published: bool = False
) -> Scales:
    """Return the scales of one group and deactivate other tensors, without new shares."""
    if published:
        _require_pre_norm(scales, f"{group}_only_published")
    groups = [_published_group(row) if published else row.group for row in scales]
    return _require_active(
        tuple(
            row if own == group else _inactive(row)
            for row, own in zip(scales, groups, strict=True)
        )
    )


def matrix_scales(scales: Scales, target_modules: TargetModules) -> Scales:
    """Return the scales of matrices and deactivate other tensors, without new shares."""
    excluded = _NOT_LINEAR if target_modules == "all-linear" else frozenset[str]()
    return _require_active(
        tuple(
            row if len(row.shape) == 2 and row.group not in excluded else _inactive(row)
            for row in scales
        )
    )


def _published_group(row: TensorScale | TensorRole) -> str:
    return "attention" if row.role == "post_attention_norm" else row.group


def _inactive(row: TensorScale) -> TensorScale:
    return replace(row, base_scale=None, correction=1.0, scale=None)


def _require_active(scales: Scales) -> Scales:
    """Refuse scales that perturb nothing; return others."""
    if all(row.scale is None for row in scales):
        raise InvalidInputError(
            "no tensor of this model has mass, so there is nothing to perturb",
            field="method.masses",
            remedy="set the mass of a group of the model; a tied head counts as embedding",
        )
    return scales


def _require_pre_norm(rows: Sequence[TensorScale], method: str) -> None:
    """Refuse families without the layers of the published control."""
    if any(row.role in _INNER_NORMS for row in rows):
        raise InvalidInputError(
            f"{method} is defined only for layers with an input norm and a norm after attention",
            field="method.name",
        )
