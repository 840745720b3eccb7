"""Checks of a matching that need no model."""

from collections.abc import Sequence

from modnorm.errors import InvalidInputError
from modnorm.perturbation.methods import needs_profile, refuse_unused_profile
from modnorm.spec import MAX_RADIUS, MIN_RADIUS, MethodSpec

MAX_RADII = 1_000
"""Limit against mistakes: each radius is measured separately."""


def check_method(method: MethodSpec, radii: Sequence[float], sigma: float) -> None:
    """Refuse a method or scales that cannot be matched on any model.

    Raises:
        InvalidInputError: the method moves nothing, is unknown, or names a profile that it does
            not use; or a scale is out of range.
    """
    if method.name == "base":
        raise InvalidInputError(
            "base perturbs nothing", field="method.name", remedy="name another method"
        )
    refuse_unused_profile(method, needed=needs_profile(method.name))
    check_scales(radii, sigma)


def check_scales(radii: Sequence[float], sigma: float) -> None:
    """Refuse invalid radii or sigma.

    Raises:
        InvalidInputError: a radius or sigma is out of range, there are no or too many radii, or a
            radius is repeated.
    """
    if not 0 < len(radii) <= MAX_RADII:
        raise InvalidInputError(
            f"there are {len(radii)} radii", field="radii", remedy=f"give 1 to {MAX_RADII}"
        )
    for name, values in (("radii", radii), ("sigma", (sigma,))):
        for value in values:
            if not MIN_RADIUS <= value <= MAX_RADIUS:
                raise InvalidInputError(
                    f"must be from {MIN_RADIUS:g} to {MAX_RADIUS:g}, not {value:g}",
                    field=name,
                    remedy="for example the paper's: --radii 0.08,0.16,0.32 --sigma 0.0005",
                )
    if len(set(radii)) < len(radii):
        raise InvalidInputError(
            "a radius is repeated", field="radii", remedy="name each radius once"
        )


def check_count(prompts: int, wanted: int) -> None:
    """Refuse a matching with too few prompts.

    Raises:
        InvalidInputError: there are too few prompts.
    """
    if prompts < wanted:
        raise InvalidInputError(
            f"there are {prompts} prompts, {wanted} are required",
            field="task.selection",
            remedy="name more rows, or lower --prompts",
        )
