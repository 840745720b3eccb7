"""SamplingService: inspection of models, scale maps and populations."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from operator import attrgetter
from pathlib import Path

from typing_extensions import override

from modnorm.artifact_store import ArtifactStore
from modnorm.calibration.profile import Profile
from modnorm.checkpoint.checkpoint_files import positive, require_unchanged
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import InvalidInputError
from modnorm.files import is_digest, json_digest
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map, check_rank, needs_profile, require_usable
from modnorm.perturbation.sampling import sample_descriptors
from modnorm.services.common.background import SlowThreads
from modnorm.services.common.encoder_cache import EncoderCache
from modnorm.services.common.model_resolution import resolve_model
from modnorm.services.common.settings import ServiceSettings
from modnorm.spec import PopulationSpec, parse_section
from modnorm.v1 import sampling_pb2, sampling_pb2_grpc
from modnorm.wire.conversions import descriptor_to_proto, method_from_proto, prompts_from_proto

SERVICE = "modnorm.v1.SamplingService"
_INSPECTIONS = 4
"""Models inspected concurrently; downloads share one network and one disk."""
_SCALE_MAPS = "2"
"""Part of the cache key: increment it if equal inputs would give another scale map."""
_BATCH = 512
"""Most descriptors in one message."""


class SamplingServicer(sampling_pb2_grpc.SamplingServiceServicer):
    """Inspects models and draws populations; caches scale maps under `cache_dir/scale_maps`."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._roots = settings.model_roots
        self._scale_maps = ArtifactStore(settings.cache / "scale_maps")
        self._encoders = EncoderCache()
        self._inspections = SlowThreads(_INSPECTIONS, "inspection")

    def close(self) -> None:
        """Stop the threads after the last call."""
        self._inspections.close()

    @override
    async def InspectModel(
        self, request: sampling_pb2.InspectModelRequest, context: object
    ) -> sampling_pb2.InspectModelResponse:
        """Check a model and its prompts; return its description."""
        return await self._inspections.run(inspect_model, request, self._roots, self._encoders)

    @override
    async def BuildScaleMap(
        self, request: sampling_pb2.BuildScaleMapRequest, context: object
    ) -> sampling_pb2.BuildScaleMapResponse:
        """Return the scale map of a method on a model, from the cache if possible."""
        scale_map = await asyncio.to_thread(find_or_build, request, self._scale_maps, self._roots)
        return sampling_pb2.BuildScaleMapResponse(
            digest=scale_map.digest, json=scale_map.to_json()
        )

    @override
    async def SampleDescriptors(
        self, request: sampling_pb2.SampleDescriptorsRequest, context: object
    ) -> AsyncIterator[sampling_pb2.SampleDescriptorsResponse]:
        """Stream the descriptors of a population, in order."""
        descriptors = await asyncio.to_thread(draw, request)
        offset = 0
        while batch := [descriptor_to_proto(one) for one in islice(descriptors, _BATCH)]:
            yield sampling_pb2.SampleDescriptorsResponse(offset=offset, descriptors=batch)
            offset += len(batch)


def inspect_model(
    request: sampling_pb2.InspectModelRequest, roots: Sequence[Path] | None, encoders: EncoderCache
) -> sampling_pb2.InspectModelResponse:
    """Check weights, family and prompts of a model."""
    if request.max_tokens < 0:
        raise InvalidInputError(
            f"{request.max_tokens} is negative",
            field="task.max_tokens",
            remedy="pass the completion cap in tokens",
        )
    messages = prompts_from_proto(request.prompts)
    checkpoint = resolve_model(request.model, roots)
    CheckpointWeights(checkpoint)  # refuses weights that do not fit the configuration
    if request.HasField("method"):
        require_usable(method_from_proto(request.method), checkpoint.config)
    # Gigabytes are digested while prompts are encoded.
    with ThreadPoolExecutor(1, "digest") as reader, encoders.lend(checkpoint) as encoder:
        reader.submit(attrgetter("digest"), checkpoint)
        prompts = [encoder.encode(turns) for turns in messages]
    return sampling_pb2.InspectModelResponse(
        model_digest=checkpoint.digest,
        num_layers=positive(checkpoint.config, "num_hidden_layers"),
        longest_prompt=check_fit(prompts, request.max_tokens, checkpoint),
    )


def find_or_build(
    request: sampling_pb2.BuildScaleMapRequest, store: ArtifactStore, roots: Sequence[Path] | None
) -> ScaleMap:
    method = method_from_proto(request.method)
    needed = needs_profile(method.name)
    checkpoint = resolve_model(request.model, roots, digest=request.model_digest)
    profile = None
    if needed:
        require_usable(method, checkpoint.config)
        if request.HasField("profile_json"):
            profile = Profile.from_json(request.profile_json)
            profile.check_matches(checkpoint)
    key = json_digest(
        {
            "version": _SCALE_MAPS,
            "model": checkpoint.digest,
            "method": method.name,
            "rank": method.rank,
            "target_modules": method.target_modules,
            "masses": method.masses.model_dump(mode="json"),
            "profile": None if profile is None else profile.digest,
        }
    )
    if (stored := store.find(key)) is not None:
        return ScaleMap.from_json(stored)
    scale_map = build_scale_map(
        method.name,
        checkpoint,
        masses=method.masses,
        sensitivities=None if profile is None else profile.sensitivities,
        rank=method.rank,
        target_modules=method.target_modules,
    )
    require_unchanged(checkpoint.directory, checkpoint.digest)
    store.put(key, scale_map.to_json())
    return scale_map


def draw(request: sampling_pb2.SampleDescriptorsRequest) -> Iterator[Descriptor]:
    """Return the descriptors of a population, in candidate order."""
    method = method_from_proto(request.method)
    needs_profile(method.name)
    population = parse_section(
        PopulationSpec,
        {"size": request.size, "seed": request.seed, "pool": request.pool, "noise": request.noise},
        field="population",
    )
    check_rank(method, population.noise)
    if not is_digest(request.scale_map_digest):
        raise InvalidInputError(
            f"{request.scale_map_digest!r} is not a digest",
            field="scale_map_digest",
            remedy="pass the digest that BuildScaleMap returned",
        )
    return sample_descriptors(
        method.name,
        request.scale_map_digest,
        radius=method.radius,
        noise=population.noise,
        seed=population.seed,
        size=population.size,
        pool=population.pool,
    )
