"""RadiusService: functional matching for clients, which name rows and models as in a spec."""

import asyncio
import json
from collections.abc import AsyncIterator

from typing_extensions import override

from modnorm.errors import UnavailableError
from modnorm.radius.matching_checks import check_count, check_scales
from modnorm.spec import ExperimentSpec
from modnorm.spec_checks import task_of
from modnorm.tasks.task_errors import render_prompts
from modnorm.v1 import calibration_pb2, radius_pb2, radius_pb2_grpc
from modnorm.wire.conversions import spec_from_proto
from modnorm.wire.radius_conversions import matching_from_proto
from services.aggregator.experiments.admission import Admission, Admissions
from services.aggregator.experiments.upstream_services import Calibrator, Prompts

SERVICE = "modnorm.v1.RadiusService"

Responses = AsyncIterator[radius_pb2.MatchRadiusResponse]


class RadiusServicer(radius_pb2_grpc.RadiusServiceServicer):
    """Matches radii through the calibrator, which caches its measurements."""

    def __init__(self, admissions: Admissions, calibrator: Calibrator) -> None:
        self._admissions = admissions
        self._calibrator = calibrator

    @override
    async def MatchRadius(
        self, request: radius_pb2.MatchRadiusRequest, context: object
    ) -> Responses:
        """Stream progress, then the artifact."""
        spec = spec_from_proto(request.spec)
        matching = matching_from_proto(request.matching)
        check_scales(matching.radii, matching.sigma)
        admission = await self._admissions.admit(spec)
        prompts = await asyncio.to_thread(_prompts, spec, admission)
        # Checked before a calibration, which takes minutes.
        check_count(len(prompts), matching.settings.prompts)
        profile = admission.profile.text if admission.profile else None
        if admission.needs_profile and profile is None:
            async for response in self._calibrate(spec, admission, prompts):
                if isinstance(response, str):
                    profile = response
                else:
                    yield response
        async for measured in self._calibrator.measure(
            spec,
            admission.model_digest,
            prompts=prompts[: matching.settings.prompts],
            profile_json=profile,
            matching=request.matching,
        ):
            yield _passed_on(measured)

    async def _calibrate(
        self, spec: ExperimentSpec, admission: Admission, prompts: Prompts
    ) -> AsyncIterator[radius_pb2.MatchRadiusResponse | str]:
        """Yield progress, then the profile that an experiment of the spec would use."""
        used = prompts[: spec.calibration.examples]
        async for response in self._calibrator.calibrate(spec, admission.model_digest, used):
            if response.WhichOneof("result") == "profile":
                yield response.profile.json
                return
            yield radius_pb2.MatchRadiusResponse(calibration=response.progress)
        raise UnavailableError("the calibrator ended without a profile")


def _prompts(spec: ExperimentSpec, admission: Admission) -> Prompts:
    """Return the prompts of the selection rows."""
    rows = [json.loads(line) for line in admission.selection.text.split("\n")]
    return render_prompts(task_of(spec), rows, "selection row")


def _passed_on(
    measured: calibration_pb2.MeasureRadiusResponse,
) -> radius_pb2.MatchRadiusResponse:
    if measured.WhichOneof("result") == "artifact":
        return radius_pb2.MatchRadiusResponse(artifact=measured.artifact)
    return radius_pb2.MatchRadiusResponse(progress=measured.progress)
