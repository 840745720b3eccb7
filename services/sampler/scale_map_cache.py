"""Cache of scale maps by their inputs."""

from collections.abc import Sequence
from pathlib import Path

from modnorm.calibration.profile import Profile
from modnorm.checkpoint.checkpoint_files import require_unchanged
from modnorm.checkpoint.reference import Checkpoint
from modnorm.files import json_digest
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.methods import build_scale_map, needs_profile, require_usable
from modnorm.services.common.artifact_store import ArtifactStore
from modnorm.services.common.model_resolution import resolve_model
from modnorm.spec import MethodSpec
from modnorm.v1 import sampling_pb2
from modnorm.wire.conversions import method_from_proto

VERSION = "1"
"""Part of the cache key: increment it if equal inputs would give another scale map."""


class ScaleMaps:
    """The scale maps of one service."""

    def __init__(
        self,
        store: ArtifactStore,
        roots: Sequence[Path] | None,
    ) -> None:
        self._store = store
        self._roots = roots

    def find_or_build(self, request: sampling_pb2.BuildScaleMapRequest) -> ScaleMap:
        """Return the scale map of a method on a model.

        Raises:
            InvalidInputError: model or method is unknown, or the profile is missing, malformed
                or of another model.
            PreconditionError: the model has another digest.
        """
        method = method_from_proto(request.method)
        needed = needs_profile(method.name)
        checkpoint = resolve_model(
            request.model,
            self._roots,
            digest=request.model_digest,
        )
        profile = None
        if needed:
            require_usable(
                method.name,
                config=checkpoint.config,
                masses=method.masses,
                rank=method.rank,
                target_modules=method.target_modules,
            )
            if request.HasField("profile_json"):
                profile = Profile.from_json(request.profile_json)
                profile.check_matches(checkpoint)
        key = _key(checkpoint, method, profile)
        stored = self._store.find(key)
        if stored is not None:
            return ScaleMap.from_json(stored)
        scale_map = _build(checkpoint, method, profile)
        require_unchanged(checkpoint.directory, checkpoint.digest)
        self._store.put(key, scale_map.to_json())
        return scale_map


def _key(checkpoint: Checkpoint, method: MethodSpec, profile: Profile | None) -> str:
    return json_digest(
        {
            "version": VERSION,
            "model": checkpoint.digest,
            "method": method.name,
            "rank": method.rank,
            "target_modules": method.target_modules,
            "masses": method.masses.model_dump(mode="json"),
            "profile": None if profile is None else profile.digest,
        }
    )


def _build(checkpoint: Checkpoint, method: MethodSpec, profile: Profile | None) -> ScaleMap:
    return build_scale_map(
        method.name,
        checkpoint,
        masses=method.masses,
        sensitivities=None if profile is None else profile.sensitivities,
        rank=method.rank,
        target_modules=method.target_modules,
    )
