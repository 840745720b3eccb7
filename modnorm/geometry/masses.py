"""Masses of physical tensors and base scales (paper, app. A.3)."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from modnorm.errors import InvalidInputError
from modnorm.geometry.tensor_roles import TensorRole
from modnorm.spec import Masses

_LAYERED = frozenset({"attention", "mlp"})
"""Groups that split their mass by layer first; other groups are one instance."""


def tensor_masses(roles: Sequence[TensorRole], totals: Masses) -> tuple[float, ...]:
    """Return m_p of every tensor (paper, eq. app_parameter_mass).

        m_p = M_g / L_g * w_u / sum_v w_v * 1 / n_u

    Args:
        roles: Roles of all tensors of the model.
        totals: M_g of each group; a group without tensors contributes nothing.
    """
    group_mass: dict[str, float] = totals.model_dump()
    instances: dict[str, set[Hashable]] = defaultdict(set)
    weights: dict[Hashable, dict[str, int]] = defaultdict(dict)
    tensors: dict[str, int] = defaultdict(int)
    for role in roles:
        instances[role.group].add(_instance(role))
        weights[_instance(role)][role.module] = role.multiplicity
        tensors[role.module] += 1

    def mass(role: TensorRole) -> float:
        siblings = sum(weights[_instance(role)].values())
        share = role.multiplicity / siblings / tensors[role.module]
        return group_mass[role.group] / len(instances[role.group]) * share

    return tuple(mass(role) for role in roles)


def base_scales(masses: Sequence[float]) -> tuple[float | None, ...]:
    """Return s_p^base = m_M / m_p (paper, eq. app_base_scale); None for tensors without mass.

    Raises:
        InvalidInputError: a scale overflows, since the masses differ too much.
    """
    total = math.fsum(masses)
    scales = tuple(total / mass if mass > 0 else None for mass in masses)
    if any(scale is not None and math.isinf(scale) for scale in scales):
        raise InvalidInputError(
            "the masses differ too much",
            field="method.masses",
            remedy="use masses of comparable size, or 0 to leave a group unperturbed",
        )
    return scales


def _instance(role: TensorRole) -> Hashable:
    """Return the instance within which a tensor shares its group's mass."""
    return (role.group, role.layer if role.group in _LAYERED else None)
