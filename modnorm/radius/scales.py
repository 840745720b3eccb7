"""What of a matching is refused before a model is looked at, by whoever is asked for it."""

from collections.abc import Sequence

from modnorm.errors import InvalidInputError
from modnorm.perturbation.methods import needs_profile, refuse_unused_profile
from modnorm.spec import MAX_RADIUS, MIN_RADIUS, MethodSpec

MAX_RADII = 1_000
"""Each is measured on its own: more are a mistake."""


def check_method(method: MethodSpec, radii: Sequence[float], sigma: float) -> None:
    """Refuse what cannot be matched whatever the model is.

    Raises:
        InvalidInputError: the method moves nothing, is not known or uses no profile but names
            one, or a scale is out of range.
    """
    if method.name == "base":
        raise InvalidInputError("base moves nothing", field="method.name", remedy="name a method")
    refuse_unused_profile(method, needed=needs_profile(method.name))
    check_scales(radii, sigma)


def check_scales(radii: Sequence[float], sigma: float) -> None:
    """Refuse scales that no candidate can have.

    Raises:
        InvalidInputError: a radius or sigma is out of range, there are no radii or too many, or
            one stands there twice.
    """
    for name, values in (("radii", radii), ("sigma", (sigma,))):
        in_range = all(MIN_RADIUS <= value <= MAX_RADIUS for value in values)
        if not 0 < len(values) <= MAX_RADII or not in_range:
            raise InvalidInputError(
                f"must be numbers from {MIN_RADIUS:g} to {MAX_RADIUS:g}, {MAX_RADII} at most",
                field=name,
                remedy="for instance the paper's: --radii 0.08,0.16,0.32 --sigma 0.0005",
            )
    if len(set(radii)) < len(radii):
        raise InvalidInputError(
            "a radius stands there twice", field="radii", remedy="name each radius once"
        )


def check_count(prompts: int, wanted: int) -> None:
    """Refuse a matching on more prompts than there are.

    Raises:
        InvalidInputError: it is one.
    """
    if prompts < wanted:
        raise InvalidInputError(
            f"there are {prompts} prompts, {wanted} are wanted",
            field="task.selection",
            remedy="name more rows, or lower --prompts",
        )
