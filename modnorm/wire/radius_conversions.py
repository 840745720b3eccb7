"""Conversions between matchings and messages of `proto/modnorm/v1`."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.radius.artifact import RadiusArtifact
from modnorm.radius.artifact_schema import MatchingSettings
from modnorm.spec.fault_messages import plain_words
from modnorm.v1 import calibration_pb2


@dataclass(frozen=True, slots=True)
class Matching:
    """Radii to try, and settings of the measurement."""

    radii: tuple[float, ...]
    sigma: float
    settings: MatchingSettings


def matching_to_proto(
    radii: Sequence[float], sigma: float, settings: MatchingSettings
) -> calibration_pb2.MatchingSpec:
    """Encode a matching."""
    return calibration_pb2.MatchingSpec(
        radii=radii,
        sigma=sigma,
        prompts=settings.prompts,
        candidates=settings.candidates,
        seed=settings.seed,
        pool=settings.pool,
        noise=settings.noise,
    )


def matching_from_proto(message: calibration_pb2.MatchingSpec) -> Matching:
    """Validate a matching that came over the wire.

    Raises:
        InvalidInputError: names the field at fault.
    """
    content = {
        name: getattr(message, name) for name in ("prompts", "candidates", "seed", "pool", "noise")
    }
    try:
        settings = MatchingSettings.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        name = ".".join(str(step) for step in fault["loc"]) or "candidates"
        raise InvalidInputError(plain_words(fault), field=f"matching.{name}") from error
    return Matching(tuple(message.radii), message.sigma, settings)


def artifact_to_proto(artifact: RadiusArtifact) -> calibration_pb2.RadiusArtifact:
    """Encode an artifact."""
    return calibration_pb2.RadiusArtifact(digest=artifact.digest, json=artifact.to_json())


def artifact_from_proto(message: calibration_pb2.RadiusArtifact) -> RadiusArtifact:
    """Decode an artifact.

    Raises:
        InvalidInputError: it is none.
        ModnormError: the service broke the contract.
    """
    artifact = RadiusArtifact.from_json(message.json)
    if artifact.digest != message.digest:
        raise ModnormError("the lab returned an artifact that does not match its digest")
    return artifact
