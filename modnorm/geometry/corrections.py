"""Raw corrections of the tensors of one Transformer layer (paper, app. A.4).

A branch is a chain of stages that begins and ends at the residual stream:

    input norm -> stages before the bond -> bond -> stages after it -> output norm

Every stage has a sensitivity. The raw correction of a tensor is the product of the sensitivities
downstream of it in its branch. The bond is the measured sensitivity of the whole map divided by
the product of its stages. A family may lack stages, so one table serves all families.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from modnorm.errors import InvalidInputError

CLIP = (0.25, 4.0)
"""Bounds of every gain, sensitivity and bond."""
RATIO = (0.5, 2.0)
"""Bounds of rho_p, the layer-relative correction."""


def clip(value: float, low: float, high: float) -> float:
    """Return `min(max(value, low), high)` (paper, eq. app_clip)."""
    return min(max(value, low), high)


@dataclass(frozen=True, slots=True)
class Stage:
    """Parallel roles at one position of a branch."""

    roles: tuple[str, ...]

    def sensitivity(self, factors: Mapping[str, float]) -> float:
        """Return the largest factor of its roles; 1 if the layer has none of them."""
        return max((factors[role] for role in self.roles if role in factors), default=1.0)


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
        inner = (stage.sensitivity(factors) for stage in (*self.before, *self.after))
        return clip(factors[self.metric] / math.prod(inner), *CLIP)

    def corrections(
        self, factors: Mapping[str, float], active: frozenset[str]
    ) -> Iterator[tuple[str, float]]:
        """Yield roles and raw corrections, from the exit upstream.

        Args:
            factors: Clipped sensitivity of each role that the layer has, and of `metric`.
            active: Perturbed roles; stages without one are excluded from the products.
        """
        downstream = 1.0
        for stage in (self.exit, *reversed(self.after), None, *reversed(self.before), self.entry):
            if stage is None:
                downstream *= self.bond(factors)
                continue
            for role in stage.roles:
                yield role, downstream
            if active.intersection(stage.roles):
                downstream *= stage.sensitivity(factors)


ATTENTION = Branch(
    metric="attention_module",
    entry=Stage(("input_norm",)),
    before=(Stage(("qkv",)), Stage(("q_norm", "k_norm"))),
    after=(Stage(("attention_output",)),),
    exit=Stage(("attention_output_norm",)),
)
MLP = Branch(
    metric="mlp_module",
    entry=Stage(("post_attention_norm", "pre_feedforward_norm")),
    before=(Stage(("gate_up",)),),
    after=(Stage(("down",)),),
    exit=Stage(("mlp_output_norm",)),
)
BRANCHES = (ATTENTION, MLP)

_MEASURED_NORMS = frozenset({"q_norm", "k_norm", "attention_output_norm", "mlp_output_norm"})
"""Norms inside a branch; the profile contains their sensitivities."""


def raw_corrections(
    gains: Mapping[str, float],
    sensitivities: Mapping[str, float],
    present: frozenset[str],
    active: frozenset[str],
) -> dict[str, float]:
    """Return r^raw of every role of one layer (paper, table "Raw correction").

    Args:
        gains: lambda(W) of each linear role.
        sensitivities: Gamma of each functional map of the layer.
        present: Roles that the layer has.
        active: Roles that are perturbed.

    Raises:
        InvalidInputError: a needed sensitivity is missing, or a value is not finite.
    """
    metrics = (*(branch.metric for branch in BRANCHES), *sorted(_MEASURED_NORMS & present))
    factors = _clipped({**gains, **_required(sensitivities, metrics)})
    return {
        role: correction
        for branch in BRANCHES
        for role, correction in branch.corrections(factors, active)
        if role in present
    }


def layer_relative(raw: Sequence[float]) -> list[float]:
    """Return rho of one layer's perturbed tensors (paper, eq. app_final_scale).

    Args:
        raw: Raw corrections of these tensors; a role with weight and bias counts twice.
    """
    middle = median(raw) if raw else 1.0
    return [clip(value / middle, *RATIO) for value in raw]


def _required(sensitivities: Mapping[str, float], metrics: Iterable[str]) -> dict[str, float]:
    try:
        return {metric: sensitivities[metric] for metric in metrics}
    except KeyError as error:
        raise InvalidInputError(
            f"the profile lacks the sensitivity {error.args[0]}",
            field="method.profile",
            remedy="calibrate the model again",
        ) from error


def _clipped(values: Mapping[str, float]) -> dict[str, float]:
    for name, value in values.items():
        if not math.isfinite(value):
            raise InvalidInputError(
                f"the sensitivity of {name} is {value}",
                field="method.profile",
                remedy="check that the weights are finite, and calibrate the model again",
            )
    return {name: clip(value, *CLIP) for name, value in values.items()}
