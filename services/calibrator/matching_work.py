"""The computation of a functional matching, checked and resolved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from filelock import FileLock

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.pretrained import best_device
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.errors import InvalidInputError
from modnorm.files import json_digest
from modnorm.perturbation.methods import needs_profile
from modnorm.radius.artifact import RadiusArtifact
from modnorm.radius.functional_matching import MatchingPlan, match
from modnorm.radius.matching_checks import check_method
from modnorm.radius.matching_plan import plan_matching
from modnorm.v1 import calibration_pb2
from modnorm.wire.conversions import method_from_proto, prompts_from_proto
from modnorm.wire.radius_conversions import matching_from_proto
from services.calibrator.computations import Report
from services.common.model_resolution import resolve_model


@dataclass(frozen=True)
class MatchingWork:
    """One matching, whose key determines its artifact.

    Each measurement is stored. So an interrupted matching resumes, and a matching with other radii
    reuses measurements.
    """

    plan: MatchingPlan
    folder: Path
    """Folder of the measurements."""
    name: ClassVar[str] = "matching"
    is_resumable: ClassVar[bool] = True

    @cached_property
    def key(self) -> str:
        """SHA-256 of all inputs of the artifact."""
        return json_digest(
            {
                "inputs": dict(self.plan.inputs(best_device())),
                "task": self.plan.task,
                "model": [self.plan.checkpoint.name, self.plan.checkpoint.revision],
                "scale_maps": [self.plan.scale_map.digest, self.plan.reference.digest],
                "target_modules": self.plan.target_modules,
                "masses": self.plan.masses.model_dump(mode="json"),
                "profile": self.plan.profile,
                "sigma": self.plan.sigma,
                "radii": list(self.plan.radii),
                "settings": self.plan.settings.model_dump(mode="json"),
            }
        )

    @property
    def total(self) -> int:
        """Number of candidates to measure."""
        return len(self.plan.conditions) * self.plan.settings.candidates

    def compute(self, report: Report) -> str:
        """Return the artifact as canonical JSON."""
        inputs = json_digest(dict(self.plan.inputs(best_device())))
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f"{inputs}.lock"):
            document = match(
                self.plan,
                self.folder / f"{inputs}.jsonl",
                on_step=lambda step: report(step.done, step.total),
            )
        return RadiusArtifact.of(document).to_json()


def make_matching(
    request: calibration_pb2.MeasureRadiusRequest, roots: Sequence[Path] | None, folder: Path
) -> MatchingWork:
    """Resolve the model, encode the prompts, build the scale maps.

    Raises:
        InvalidInputError: a field of the request is invalid.
        PreconditionError: the model has another digest.
    """
    matching = matching_from_proto(request.matching)
    method = method_from_proto(request.method)
    check_method(method, matching.radii, matching.sigma)
    if not request.task:
        raise InvalidInputError("the task has no name", field="task", remedy="name the task")
    messages = prompts_from_proto(request.prompts)[: matching.settings.prompts]
    checkpoint = resolve_model(request.model, roots, digest=request.model_digest)
    encoder = PromptEncoder(checkpoint)
    plan = plan_matching(
        checkpoint=checkpoint,
        task=request.task,
        prompts=[encoder.encode(turns) for turns in messages],
        method=method,
        profile=_profile(request),
        radii=matching.radii,
        sigma=matching.sigma,
        settings=matching.settings,
    )
    plan.check()
    return MatchingWork(plan, folder)


def _profile(request: calibration_pb2.MeasureRadiusRequest) -> Profile | None:
    """Return the profile, which methods without need of one ignore."""
    given = needs_profile(request.method.name) and request.HasField("profile_json")
    return Profile.from_json(request.profile_json) if given else None
