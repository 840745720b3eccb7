"""SamplingService: models, their scale maps and the populations drawn with them."""

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
from typing_extensions import override

from modnorm.v1 import sampling_pb2, sampling_pb2_grpc
from services.common.artifacts import ArtifactStore
from services.common.settings import ServiceSettings
from services.common.threads import SlowThreads
from services.sampler.inspection import inspect_model
from services.sampler.population import batched, draw
from services.sampler.scale_maps import ScaleMaps

SERVICE = "modnorm.v1.SamplingService"
_INSPECTIONS = 4
"""Models that are looked at, and downloaded where they are not here, at a time: each takes its
share of one line and of one disk, and makes the others no faster."""


class SamplingServicer(sampling_pb2_grpc.SamplingServiceServicer):
    """Knows the models' geometry; keeps scale maps under `cache_dir/scale_maps`.

    Args:
        settings: Where models may lie and scale maps are kept.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._roots = settings.model_roots
        store = ArtifactStore(settings.cache_dir / "scale_maps")
        self._scale_maps = ScaleMaps(store, settings.model_roots)
        self._inspections = SlowThreads(_INSPECTIONS, "inspection")

    def close(self) -> None:
        """Let go of the threads; used when no call comes any more."""
        self._inspections.close()

    @override
    async def InspectModel(
        self,
        request: sampling_pb2.InspectModelRequest,
        context: grpc.aio.ServicerContext[
            sampling_pb2.InspectModelRequest, sampling_pb2.InspectModelResponse
        ],
    ) -> sampling_pb2.InspectModelResponse:
        """Check a model and its prompts, and tell what it is."""
        return await self._inspections.run(inspect_model, request, self._roots)

    @override
    async def BuildScaleMap(
        self,
        request: sampling_pb2.BuildScaleMapRequest,
        context: grpc.aio.ServicerContext[
            sampling_pb2.BuildScaleMapRequest, sampling_pb2.BuildScaleMapResponse
        ],
    ) -> sampling_pb2.BuildScaleMapResponse:
        """Return the scale map of a method on a model, from the cache where it is known."""
        scale_map = await asyncio.to_thread(self._scale_maps.find_or_build, request)
        return sampling_pb2.BuildScaleMapResponse(
            digest=scale_map.digest, json=scale_map.to_json()
        )

    @override
    async def SampleDescriptors(
        self,
        request: sampling_pb2.SampleDescriptorsRequest,
        context: grpc.aio.ServicerContext[
            sampling_pb2.SampleDescriptorsRequest, sampling_pb2.SampleDescriptorsResponse
        ],
    ) -> AsyncIterator[sampling_pb2.SampleDescriptorsResponse]:
        """Stream the descriptors of a population, in order."""
        descriptors = await asyncio.to_thread(draw, request)
        for response in batched(descriptors):
            yield response
