"""From a spec to a functional matching on this machine."""

from collections.abc import Callable, Sequence

from modnorm.artifact_store import ArtifactStore
from modnorm.calibration.calibrate import calibrate, calibration_key, calibration_prompts
from modnorm.calibration.profile import Profile
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.client.settings import ClientSettings
from modnorm.errors import InvalidInputError
from modnorm.perturbation.methods import build_scale_map, check_rank, needs_profile
from modnorm.radius.artifact import MatchingSettings
from modnorm.radius.functional_matching import MatchingPlan
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import names_stored_profile, read_profile, task_of
from modnorm.tasks.row_loading import load_data
from modnorm.tasks.task_errors import render_prompts

CalibrationProgress = Callable[[int, int], None]


def make_plan(  # noqa: PLR0913 - all but the spec by keyword; they are the command's options
    spec: ExperimentSpec,
    *,
    radii: Sequence[float],
    sigma: float,
    settings: MatchingSettings,
    client: ClientSettings,
    on_calibration: CalibrationProgress | None = None,
) -> MatchingPlan:
    """Return the matching that a spec asks for: its model, method and first selection rows."""
    checkpoint = resolve_checkpoint(spec.model.name, spec.model.revision)
    encoded = _prompts(spec, checkpoint, max(settings.prompts, spec.calibration.examples), client)
    method = spec.method
    check_rank(method, settings.noise)
    profile = _profile(spec, checkpoint, encoded, client, on_calibration)
    return MatchingPlan(
        checkpoint=checkpoint,
        task=spec.task.name,
        prompts=encoded[: settings.prompts],
        scale_map=build_scale_map(
            method.name,
            checkpoint,
            masses=method.masses,
            sensitivities=profile.sensitivities if profile else None,
            rank=method.rank,
            target_modules=method.target_modules,
        ),
        reference=build_scale_map("randopt", checkpoint),
        masses=method.masses,
        target_modules=method.target_modules,
        profile=profile.digest if profile else None,
        sigma=sigma,
        radii=tuple(sorted(radii)),
        settings=settings,
    )


def calibrate_experiment(spec: ExperimentSpec, client: ClientSettings) -> str:
    """Return the digest of the profile that an experiment would calibrate."""
    checkpoint = resolve_checkpoint(spec.model.name, spec.model.revision)
    prompts = _prompts(spec, checkpoint, spec.calibration.examples, client)
    return _calibrated(spec, checkpoint, prompts, client, None).digest


def _prompts(
    spec: ExperimentSpec, checkpoint: Checkpoint, count: int, client: ClientSettings
) -> list[list[int]]:
    task, source = task_of(spec), spec.task.selection
    rows = load_data(task, source, field="task.selection", folders=client.split_folders).rows
    encoder = PromptEncoder(checkpoint)
    return [
        encoder.encode(messages)
        for messages in render_prompts(task, rows[:count], "selection row")
    ]


def _profile(
    spec: ExperimentSpec,
    checkpoint: Checkpoint,
    prompts: list[list[int]],
    client: ClientSettings,
    on_progress: CalibrationProgress | None,
) -> Profile | None:
    """Return the profile that the method needs: by file, digest or fingerprint, or calibrated."""
    name = spec.method.profile
    if not needs_profile(spec.method.name):
        return None
    if name is None:
        return _calibrated(spec, checkpoint, prompts, client, on_progress)
    text = _store(client).get(name) if names_stored_profile(name) else read_profile(name, None)
    if text is None:
        raise InvalidInputError(
            f"there is no profile {name[:16]}... on this machine",
            field="method.profile",
            remedy="name its file, or omit it to calibrate one",
        )
    profile = Profile.from_json(text)
    profile.check_matches(checkpoint)
    return profile


def _calibrated(
    spec: ExperimentSpec,
    checkpoint: Checkpoint,
    prompts: list[list[int]],
    client: ClientSettings,
    on_progress: CalibrationProgress | None,
) -> Profile:
    """Return the profile that a run calibrates too: both take it from the cache directory."""
    settings, task = spec.calibration, spec.task.name
    used = calibration_prompts(prompts, settings)

    def make() -> str:
        found = calibrate(checkpoint, used, settings, task=task, on_progress=on_progress)
        return found.to_json()

    key = calibration_key(checkpoint, used, settings, task)
    return Profile.from_json(_store(client).find_or_make(key, make))


def _store(client: ClientSettings) -> ArtifactStore:
    return ArtifactStore(client.cache / "profiles")
