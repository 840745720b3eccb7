"""Objectives that choose a radius (paper, eq. radius_matching_objective, "Scale selection")."""

import math
from collections.abc import Sequence

from modnorm.errors import InvalidInputError

_DECIMALS = 12
"""Decimals to which objectives are compared."""


def matching_objective(kl: float, hidden: float, *, iso_kl: float, iso_hidden: float) -> float:
    """Return J(R) = ln(KL / KL_iso)^2 + ln(h / h_iso)^2; 0 at a match.

    Args:
        kl: Mean symmetric KL divergence at the radius, not negative.
        hidden: Mean relative hidden displacement at the radius, not negative.
        iso_kl: KL divergence of the isotropic reference, positive.
        iso_hidden: Hidden displacement of the isotropic reference, positive.

    Returns:
        J; infinite if the radius moves nothing.
    """
    if kl <= 0 or hidden <= 0:
        return math.inf
    return math.log(kl / iso_kl) ** 2 + math.log(hidden / iso_hidden) ** 2


def smallest(objectives: Sequence[tuple[float, float]]) -> float:
    """Return the radius with the smallest objective; on ties the smaller radius.

    Objectives are compared to twelve decimals: means of the same sum can differ in the last bit.

    Args:
        objectives: Radius and objective; an infinite objective is never chosen.

    Raises:
        InvalidInputError: no objective is finite.
    """
    usable = [
        (round(objective, _DECIMALS), radius)
        for radius, objective in objectives
        if math.isfinite(objective)
    ]
    if not usable:
        raise InvalidInputError(
            "no radius changes the model: rounding removes every perturbation",
            field="radii",
            remedy="try larger radii",
        )
    return min(usable)[1]


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, whose rounding does not depend on the order."""
    return math.fsum(values) / len(values)
