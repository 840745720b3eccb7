"""SamplingService: inspection of models, scale maps and populations."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from typing_extensions import override

from modnorm.checkpoint.config import positive
from modnorm.checkpoint.prompts import check_fit
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.errors import InvalidInputError
from modnorm.services.common.artifact_store import ArtifactStore
from modnorm.services.common.model_resolution import resolve_model
from modnorm.services.common.settings import ServiceSettings
from modnorm.services.common.slow_threads import SlowThreads
from modnorm.services.sampler.descriptor_stream import batched, draw
from modnorm.services.sampler.encoder_cache import EncoderCache
from modnorm.services.sampler.scale_map_cache import ScaleMaps
from modnorm.v1 import sampling_pb2, sampling_pb2_grpc
from modnorm.wire.conversions import prompts_from_proto

SERVICE = "modnorm.v1.SamplingService"
_INSPECTIONS = 4
"""Models inspected concurrently; downloads share one network and one disk."""


class SamplingServicer(sampling_pb2_grpc.SamplingServiceServicer):
    """Inspects models and draws populations; caches scale maps under `cache_dir/scale_maps`."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._roots = settings.model_roots
        store = ArtifactStore(settings.cache / "scale_maps")
        self._scale_maps = ScaleMaps(store, settings.model_roots)
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
        scale_map = await asyncio.to_thread(self._scale_maps.find_or_build, request)
        return sampling_pb2.BuildScaleMapResponse(
            digest=scale_map.digest, json=scale_map.to_json()
        )

    @override
    async def SampleDescriptors(
        self, request: sampling_pb2.SampleDescriptorsRequest, context: object
    ) -> AsyncIterator[sampling_pb2.SampleDescriptorsResponse]:
        """Stream the descriptors of a population, in order."""
        descriptors = await asyncio.to_thread(draw, request)
        for response in batched(descriptors):
            yield response


def inspect_model(
    request: sampling_pb2.InspectModelRequest,
    roots: Sequence[Path] | None,
    encoders: EncoderCache,
) -> sampling_pb2.InspectModelResponse:
    """Check weights, family and prompts of a model.

    Raises:
        InvalidInputError: the model is unknown, unsupported or incomplete, or a prompt does
            not fit.
    """
    if request.max_tokens < 0:
        raise InvalidInputError(
            f"{request.max_tokens} is negative",
            field="task.max_tokens",
            remedy="pass the completion cap in tokens",
        )
    messages = prompts_from_proto(request.prompts)
    checkpoint = resolve_model(request.model, roots)
    weights = CheckpointWeights(checkpoint)
    with encoders.lend(checkpoint) as encoder:
        prompts = [encoder.encode(turns) for turns in messages]
    return sampling_pb2.InspectModelResponse(
        model_digest=checkpoint.digest,
        family=str(checkpoint.config["model_type"]),
        num_layers=positive(checkpoint.config, "num_hidden_layers"),
        num_tensors=len(weights.layout),
        max_position=checkpoint.max_position,
        longest_prompt=check_fit(prompts, request.max_tokens, checkpoint),
    )
