"""Calls to the sampler and the calibrator."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import grpc
import grpc.aio

from modnorm.errors import (
    ForbiddenError,
    InvalidInputError,
    ModnormError,
    UnauthenticatedError,
    UnavailableError,
)
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.services.common.channels import CALL_SECONDS, MESSAGE_BYTES
from modnorm.spec import ExperimentSpec, MethodSpec, ModelSpec
from modnorm.tasks import Message
from modnorm.v1 import calibration_pb2, common_pb2, sampling_pb2
from modnorm.v1.calibration_pb2_grpc import CalibrationServiceStub
from modnorm.v1.sampling_pb2_grpc import SamplingServiceStub
from modnorm.wire.connection import Credentials, Metadata
from modnorm.wire.conversions import descriptor_from_proto, prompt_to_proto, section_to_proto
from modnorm.wire.status import from_neighbour

MODEL_SECONDS = 1_800.0
"""Deadline of calls that may download, read and hash a model first."""
CALIBRATION_SECONDS = 24 * 3600.0

Prompts = Sequence[Sequence[Message]]


class Sampler:
    """Client of SamplingService; every method raises the service's error."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials) -> None:
        self._stub = SamplingServiceStub(channel)
        self._call = partial(_call, "sampler", credentials)

    async def inspect(
        self, spec: ExperimentSpec, prompts: Prompts, max_tokens: int
    ) -> sampling_pb2.InspectModelResponse:
        """Check the model and the method of a spec, and that prompts with completions fit."""
        request = sampling_pb2.InspectModelRequest(
            model=section_to_proto(spec.model, common_pb2.ModelRef),
            method=section_to_proto(spec.method, common_pb2.MethodSpec),
            prompts=[prompt_to_proto(messages) for messages in prompts],
            max_tokens=max_tokens,
        )
        if (size := request.ByteSize()) > MESSAGE_BYTES:
            raise InvalidInputError(
                f"the prompts of all rows take {size} bytes, the limit is {MESSAGE_BYTES}",
                field="task",
                remedy="set a limit on task.selection and task.heldout, or remove long rows",
            )
        with self._call() as metadata:
            return await self._stub.InspectModel(request, timeout=MODEL_SECONDS, metadata=metadata)

    async def scale_map(
        self,
        model: ModelSpec,
        model_digest: str,
        method: MethodSpec,
        profile_json: str | None = None,
    ) -> ScaleMap:
        request = sampling_pb2.BuildScaleMapRequest(
            model=section_to_proto(model, common_pb2.ModelRef),
            model_digest=model_digest,
            method=section_to_proto(method, common_pb2.MethodSpec),
            profile_json=profile_json,
        )
        with self._call() as metadata:
            response = await self._stub.BuildScaleMap(
                request, timeout=MODEL_SECONDS, metadata=metadata
            )
        scale_map = ScaleMap.from_json(response.json)
        if scale_map.digest != response.digest:
            raise ModnormError("the sampler returned a scale map that does not match its digest")
        return scale_map

    async def descriptors(
        self, spec: ExperimentSpec, scale_map_digest: str
    ) -> tuple[Descriptor, ...]:
        """Return the descriptors of the population of a spec, in candidate order."""
        population = spec.population
        request = sampling_pb2.SampleDescriptorsRequest(
            seed=population.seed,
            size=population.size,
            pool=population.pool,
            noise=population.noise,
            method=section_to_proto(spec.method, common_pb2.MethodSpec),
            scale_map_digest=scale_map_digest,
        )
        descriptors: list[Descriptor] = []
        with self._call() as metadata:
            stream = self._stub.SampleDescriptors(
                request, timeout=MODEL_SECONDS, metadata=metadata
            )
            async for response in stream:
                if response.offset != len(descriptors):
                    raise ModnormError("the sampler sent descriptors out of order")
                descriptors.extend(descriptor_from_proto(one) for one in response.descriptors)
        if len(descriptors) != population.size:
            raise ModnormError(
                f"the sampler sent {len(descriptors)} descriptors instead of {population.size}"
            )
        return tuple(descriptors)


class Calibrator:
    """Client of CalibrationService; every method raises the service's error."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials) -> None:
        self._stub = CalibrationServiceStub(channel)
        self._call = partial(_call, "calibrator", credentials)

    async def profile(self, digest: str) -> calibration_pb2.Profile:
        request = calibration_pb2.GetProfileRequest(digest=digest)
        with self._call() as metadata:
            response = await self._stub.GetProfile(
                request, timeout=CALL_SECONDS, metadata=metadata
            )
            return response.profile

    async def calibrate(
        self, spec: ExperimentSpec, model_digest: str, prompts: Prompts
    ) -> AsyncIterator[calibration_pb2.CalibrateResponse]:
        """Yield progress, then the profile of the model of a spec."""
        request = calibration_pb2.CalibrateRequest(
            model=section_to_proto(spec.model, common_pb2.ModelRef),
            model_digest=model_digest,
            prompts=[prompt_to_proto(messages) for messages in prompts],
            task=spec.task.name,
            settings=section_to_proto(spec.calibration, common_pb2.CalibrationSpec),
        )
        with self._call() as metadata:
            stream = self._stub.Calibrate(request, timeout=CALIBRATION_SECONDS, metadata=metadata)
            async for response in stream:
                yield response


@contextmanager
def _call(name: str, credentials: Credentials) -> Iterator[Metadata]:
    """Yield the metadata of a call; raise the error of the service."""
    try:
        metadata = credentials.metadata()
    except ModnormError as error:
        raise _refused(error) from error
    try:
        yield metadata
    except grpc.RpcError as error:
        met = from_neighbour(error, name)
        if isinstance(met, UnauthenticatedError | ForbiddenError):
            raise _refused(met) from error
        raise met from error


def _refused(error: ModnormError) -> UnavailableError:
    """Return the error for an invalid token of the aggregator, which is no error of the spec."""
    return UnavailableError(
        f"the aggregator may not call its neighbours: {error.message}",
        remedy="give it a token with the role internal (its MODNORM_TOKEN_FILE)",
    )
