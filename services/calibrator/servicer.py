"""CalibrationService: profiles cached by their inputs."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing

from typing_extensions import override

from modnorm.calibration.profile import FINGERPRINT_DIGITS, Profile
from modnorm.errors import InvalidInputError, NotFoundError
from modnorm.services.calibrator.calibration_work import CalibrationWork, make_calibration
from modnorm.services.calibrator.computations import Computations, Progress
from modnorm.services.common.artifact_store import ArtifactStore
from modnorm.services.common.settings import ServiceSettings
from modnorm.services.common.slow_threads import SlowThreads
from modnorm.v1 import calibration_pb2, calibration_pb2_grpc

SERVICE = "modnorm.v1.CalibrationService"
_NAMES = re.compile(f"[0-9a-f]{{{FINGERPRINT_DIGITS}}}|[0-9a-f]{{64}}")
_RESOLUTIONS = 8
"""Models resolved concurrently: more than cores, since some wait for their download."""


class CalibrationServicer(calibration_pb2_grpc.CalibrationServiceServicer):
    """Computes profiles, which are stored under `profiles`."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._roots = settings.model_roots
        self._store = ArtifactStore(settings.cache / "profiles")
        self._calibrations = Computations(self._store)
        self._resolutions = SlowThreads(_RESOLUTIONS, "resolution")

    def close(self) -> None:
        """Stop the threads after the last call."""
        self._resolutions.close()

    @override
    async def Calibrate(
        self, request: calibration_pb2.CalibrateRequest, context: object
    ) -> AsyncIterator[calibration_pb2.CalibrateResponse]:
        """Stream progress, then the profile."""
        plan = await self._resolutions.run(make_calibration, request, self._roots)
        stored = await asyncio.to_thread(self._stored, plan)
        if stored is not None:
            yield _response(stored)
            return
        async with aclosing(self._calibrations.follow(plan)) as results:
            async for result in results:
                yield _response(result)

    @override
    async def GetProfile(
        self, request: calibration_pb2.GetProfileRequest, context: object
    ) -> calibration_pb2.GetProfileResponse:
        """Return a stored profile by its digest or fingerprint."""
        if not _NAMES.fullmatch(request.digest):
            raise InvalidInputError(
                f"{request.digest!r} is not a digest",
                field="digest",
                remedy=f"give 64 hexadecimal digits, or the first {FINGERPRINT_DIGITS}",
            )
        text = await asyncio.to_thread(self._store.get, request.digest)
        if text is None:
            raise NotFoundError(f"there is no profile {request.digest}", field="digest")
        return calibration_pb2.GetProfileResponse(profile=_message(Profile.from_json(text)))

    def _stored(self, plan: CalibrationWork) -> Profile | None:
        text = self._store.find(plan.key)
        return None if text is None else Profile.from_json(text)


def _response(result: Progress | Profile | str) -> calibration_pb2.CalibrateResponse:
    if isinstance(result, str):
        result = Profile.from_json(result)
    if isinstance(result, Profile):
        return calibration_pb2.CalibrateResponse(profile=_message(result))
    done, total = result
    return calibration_pb2.CalibrateResponse(
        progress=calibration_pb2.CalibrationProgress(examples_done=done, examples_total=total)
    )


def _message(profile: Profile) -> calibration_pb2.Profile:
    return calibration_pb2.Profile(digest=profile.digest, json=profile.to_json())
