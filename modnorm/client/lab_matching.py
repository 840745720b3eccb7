"""A functional matching in a lab: followed by the client, measured by the lab's calibrator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from modnorm.client.calls import match_radius
from modnorm.client.client import Client
from modnorm.errors import UnavailableError
from modnorm.radius.artifact import RadiusArtifact
from modnorm.spec import ExperimentSpec
from modnorm.v1 import radius_pb2
from modnorm.wire.conversions import spec_to_proto
from modnorm.wire.radius_conversions import Matching, artifact_from_proto, matching_to_proto


@dataclass(frozen=True, slots=True)
class LabStep:
    """Progress of a matching."""

    phase: Literal["calibrating", "measuring"]
    """Whether the profile is being calibrated, or candidates are measured."""
    done: int
    total: int


def match_in_lab(
    client: Client,
    spec: ExperimentSpec,
    matching: Matching,
    on_step: Callable[[LabStep], None],
) -> RadiusArtifact:
    """Have a lab match a radius, and return the artifact.

    A lab keeps its measurements: the same call resumes an interrupted one.

    Raises:
        InvalidInputError: the spec or the matching is not sound.
        UnavailableError: the lab, or a service of it, is down.
    """
    request = radius_pb2.MatchRadiusRequest(
        spec=spec_to_proto(_settled(spec)),
        matching=matching_to_proto(matching.radii, matching.sigma, matching.settings),
    )
    for response in client.stream(match_radius(request)):
        match response.WhichOneof("result"):
            case "artifact":
                return artifact_from_proto(response.artifact)
            case "calibration":
                prompts = response.calibration
                on_step(LabStep("calibrating", prompts.examples_done, prompts.examples_total))
            case _:
                done = response.progress.candidates_done
                on_step(LabStep("measuring", done, response.progress.candidates_total))
    raise UnavailableError("the lab ended without an artifact", remedy="start the command again")


def _settled(spec: ExperimentSpec) -> ExperimentSpec:
    """Return a spec that a lab accepts: a number, whichever, where an artifact may be named."""
    method = spec.method.model_copy(update={"radius": 1.0, "radius_source": None})
    return spec.model_copy(update={"method": method})
