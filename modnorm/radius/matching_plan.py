"""The plan of a matching from a model, a method and prompts."""

from collections.abc import Sequence

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.reference import Checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.methods import build_scale_map, check_rank
from modnorm.radius.artifact_schema import MatchingSettings
from modnorm.radius.functional_matching import MatchingPlan
from modnorm.spec import MethodSpec

_REFERENCE = MethodSpec(name="randopt", radius=1.0)
"""The isotropic reference; a scale map does not depend on the radius."""


def plan_matching(  # noqa: PLR0913 - keyword arguments that define a matching
    *,
    checkpoint: Checkpoint,
    task: str,
    prompts: Sequence[Sequence[int]],
    method: MethodSpec,
    profile: Profile | None,
    radii: Sequence[float],
    sigma: float,
    settings: MatchingSettings,
) -> MatchingPlan:
    """Return the matching of a method on a model.

    Args:
        checkpoint: The model.
        task: Name of the prompts' task.
        prompts: Token ids; the first `settings.prompts` are used.
        method: The method; its radius is ignored.
        profile: The profile, for methods that need one.
        radii: Radii to try, in any order.
        sigma: Standard deviation of the isotropic reference.
        settings: Settings of the measurement.

    Raises:
        InvalidInputError: the method cannot be used on this model, or with this profile.
    """
    check_rank(method, settings.noise)
    if profile is not None:
        profile.check_matches(checkpoint)
    return MatchingPlan(
        checkpoint=checkpoint,
        task=task,
        prompts=[list(prompt) for prompt in prompts[: settings.prompts]],
        scale_map=_scale_map(method, checkpoint, profile),
        reference=_scale_map(_REFERENCE, checkpoint, None),
        masses=method.masses,
        target_modules=method.target_modules,
        profile=profile.digest if profile else None,
        sigma=sigma,
        radii=tuple(sorted(radii)),
        settings=settings,
    )


def _scale_map(method: MethodSpec, checkpoint: Checkpoint, profile: Profile | None) -> ScaleMap:
    return build_scale_map(
        method.name,
        checkpoint,
        masses=method.masses,
        sensitivities=profile.sensitivities if profile else None,
        rank=method.rank,
        target_modules=method.target_modules,
    )
