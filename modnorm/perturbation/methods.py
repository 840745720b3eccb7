"""Methods and baselines by name: each is a function from a model to a scale map.

To add an ablation, add an entry to `METHODS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from modnorm.checkpoint.families import Layout, physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.geometry.scales import (
    Scales,
    frobenius_scales,
    group_share_scales,
    inactive_scales,
    isotropic_scales,
    masked_scales,
    matrix_scales,
    modular_scales,
    natural_norm_scales,
    rmsnorm_doubled_scales,
    uncorrected_scales,
)
from modnorm.hints import one_of
from modnorm.noise import PORTABLE
from modnorm.spec import Masses, MethodSpec, TargetModules

_MASSES = Masses()


@dataclass(frozen=True, slots=True)
class MethodInputs:
    layout: Layout
    masses: Masses
    checkpoint: Checkpoint | None
    """None: scales are not corrected by sensitivities, which need the weights."""
    sensitivities: Sequence[Mapping[str, float]] | None


@dataclass(frozen=True, slots=True)
class Method:
    summary: str
    """Description in one sentence."""
    build: Callable[[MethodInputs], Scales]
    needs_profile: bool = False
    """Whether it needs weights and sensitivities."""
    low_rank: bool = False
    """Whether its noise may have a rank, and `target_modules`."""
    has_masses: bool = True
    """Whether its scales depend on the masses of the groups."""


def _modular(inputs: MethodInputs, masses: Masses) -> Scales:
    if inputs.checkpoint is None:
        return uncorrected_scales(inputs.layout, masses)
    if inputs.sensitivities is None:
        raise InvalidInputError(
            "the method needs a sensitivity profile",
            field="method.profile",
            remedy="make one with `modnorm calibrate`, and name it",
        )
    from modnorm.checkpoint.weights import CheckpointWeights  # noqa: PLC0415 - loads torch

    return modular_scales(
        inputs.layout,
        masses=masses,
        read=CheckpointWeights(inputs.checkpoint).read,
        sensitivities=inputs.sensitivities,
    )


def _modular_norm(inputs: MethodInputs) -> Scales:
    return _modular(inputs, inputs.masses)


def _rmsnorm_only(inputs: MethodInputs) -> Scales:
    if inputs.masses.norm <= 0:
        raise InvalidInputError(
            "rmsnorm_only perturbs norm weights only, and their mass is 0",
            field="method.masses.norm",
            remedy="use the default masses",
        )
    norm = inputs.masses.norm
    return _modular(inputs, Masses(embedding=0, attention=0, mlp=0, head=0, norm=norm, other=0))


def _isotropic(inputs: MethodInputs) -> Scales:
    return isotropic_scales(inputs.layout)


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "modular_norm": Method(
            "The paper's method: all groups, sensitivity-calibrated.",
            _modular_norm,
            needs_profile=True,
            low_rank=True,
        ),
        "randopt": Method(
            "Isotropic noise: the radius is its standard deviation, at every rank.",
            _isotropic,
            low_rank=True,
            has_masses=False,
        ),
        "rmsnorm_only": Method(
            "The paper's baseline that perturbs RMSNorm weights alone (table 1).",
            _rmsnorm_only,
            needs_profile=True,
        ),
        "no_sensitivity": Method(
            "Ablation: base scales, no corrections (published as `recursive_modular_shell`).",
            lambda inputs: uncorrected_scales(inputs.layout, inputs.masses),
        ),
        "rmsnorm_scale_correction": Method(
            "Ablation: base scales, doubled for the two norms of each layer.",
            lambda inputs: rmsnorm_doubled_scales(inputs.layout, inputs.masses),
        ),
        "no_recursive_scaling": Method(
            "Ablation, first reading: a group's mass in equal shares (published as "
            "`modular_shell`).",
            lambda inputs: group_share_scales(inputs.layout, inputs.masses, published=False),
        ),
        "no_recursive_scaling_published": Method(
            "Ablation, first reading with the published groups, which depend on words in tensor "
            "names.",
            lambda inputs: group_share_scales(inputs.layout, inputs.masses, published=True),
        ),
        "no_recursive_scaling_natural_norm": Method(
            "Ablation, second reading: natural norms alone (published as `natural_norm`).",
            lambda inputs: natural_norm_scales(inputs.layout),
            has_masses=False,
        ),
        "frobenius": Method(
            "Control: the radius is the Frobenius norm of every tensor's perturbation.",
            lambda inputs: frobenius_scales(inputs.layout),
            has_masses=False,
        ),
        "attention_only": Method(
            "Control: the full method's scales, with only attention perturbed.",
            lambda inputs: masked_scales(_modular_norm(inputs), "attention"),
            needs_profile=True,
        ),
        "attention_only_published": Method(
            "Control: `attention_only` with the published mask, which keeps the norm behind it.",
            lambda inputs: masked_scales(_modular_norm(inputs), "attention", published=True),
            needs_profile=True,
        ),
        "mlp_only": Method(
            "Control: the full method's scales, with only the MLP perturbed.",
            lambda inputs: masked_scales(_modular_norm(inputs), "mlp"),
            needs_profile=True,
        ),
        "base": Method(
            "The unperturbed model.",
            lambda inputs: inactive_scales(inputs.layout),
            has_masses=False,
        ),
        "es": Method(
            "Baseline: iterative ES with isotropic noise; the radius is sigma.",
            _isotropic,
            has_masses=False,
        ),
        "mezo": Method(
            "Baseline: MeZO, two-point estimates with isotropic noise; the radius is epsilon.",
            _isotropic,
            has_masses=False,
        ),
        "zo_finetuner": Method(
            "Baseline: ZO-Finetuner, MeZO with a prepared generator; the radius is epsilon.",
            _isotropic,
            has_masses=False,
        ),
    }
)
"""Methods by their name in specs and scale maps."""


def method_names() -> tuple[str, ...]:
    return tuple(sorted(METHODS))


def needs_profile(method: str) -> bool:
    """Return whether a method needs weights and a calibrated profile."""
    return _method(method).needs_profile


def refuse_unused_fields(method: MethodSpec) -> None:
    """Refuse a profile or masses that would change nothing."""
    used = _method(method.name)
    unused = {
        "profile": method.profile is not None and not used.needs_profile,
        "masses": method.masses != _MASSES and not used.has_masses,
    }
    for field in filter(unused.get, unused):
        raise InvalidInputError(
            f"{method.name} uses no {field}", field=f"method.{field}", remedy="remove the field"
        )


def check_rank(method: MethodSpec, noise: str) -> None:
    """Refuse a rank that the method or the noise scheme cannot have."""
    if method.rank is None:
        return
    _check_low_rank(method.name)
    if noise != PORTABLE:
        raise InvalidInputError(
            f"low-rank noise is defined for {PORTABLE} only, not for {noise}",
            field="method.rank",
            remedy=f"set population.noise to {PORTABLE}, or remove the rank",
        )


def _check_low_rank(method: str) -> None:
    allowed = sorted(name for name, one in METHODS.items() if one.low_rank)
    if method not in allowed:
        raise InvalidInputError(
            f"{method} has no low-rank noise",
            field="method.rank",
            remedy=f"remove the field, or use {' or '.join(allowed)}",
        )


def require_usable(method: MethodSpec, config: Mapping[str, object]) -> None:
    """Refuse a method that cannot be used on a model, with or without a profile."""
    inputs = MethodInputs(physical_layout(config), method.masses, None, None)
    _scales(method.name, inputs, method.rank, method.target_modules)


def build_scale_map(  # noqa: PLR0913 - keyword arguments that identify a map
    method: str,
    checkpoint: Checkpoint,
    *,
    masses: Masses = _MASSES,
    sensitivities: Sequence[Mapping[str, float]] | None = None,
    rank: int | None = None,
    target_modules: TargetModules = "all",
) -> ScaleMap:
    layout = physical_layout(checkpoint.config)
    inputs = MethodInputs(layout, masses, checkpoint, sensitivities)
    return ScaleMap(method, checkpoint.digest, _scales(method, inputs, rank, target_modules), rank)


def _scales(
    method: str, inputs: MethodInputs, rank: int | None, target_modules: TargetModules
) -> Scales:
    scales = _method(method).build(inputs)
    if rank is None:
        return scales
    _check_low_rank(method)
    return matrix_scales(scales, target_modules)


def _method(name: str) -> Method:
    try:
        return METHODS[name]
    except KeyError:
        raise InvalidInputError(
            f"there is no method {name!r}",
            field="method.name",
            remedy=one_of(name, method_names()),
        ) from None
