"""CalibrationService: profiles cached by their inputs, each computed once for all callers."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from modnorm.artifact_store import ArtifactStore
from modnorm.calibration.calibrate import calibrate, calibration_key, calibration_prompts
from modnorm.calibration.profile import FINGERPRINT_DIGITS, Profile
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import CancelledError, InvalidInputError, NotFoundError
from modnorm.services.common.background import SlowThreads
from modnorm.services.common.encoder_cache import EncoderCache
from modnorm.services.common.model_resolution import resolve_model
from modnorm.services.common.settings import ServiceSettings
from modnorm.spec import CalibrationSpec
from modnorm.v1 import calibration_pb2, calibration_pb2_grpc
from modnorm.wire.conversions import calibration_from_proto, prompts_from_proto

SERVICE = "modnorm.v1.CalibrationService"
_NAMES = re.compile(f"[0-9a-f]{{{FINGERPRINT_DIGITS}}}|[0-9a-f]{{64}}")
_RESOLUTIONS = 8
"""Models resolved concurrently: more than cores, since some wait for their download."""
Progress = tuple[int, int]
"""Number of finished steps and of all steps."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrationWork:
    """One calibration, whose key determines its profile."""

    checkpoint: Checkpoint
    prompts: list[list[int]]
    """Token ids of the measured prompts."""
    settings: CalibrationSpec
    task: str

    @cached_property
    def key(self) -> str:
        """SHA-256 of all inputs of the profile."""
        return calibration_key(self.checkpoint, self.prompts, self.settings, self.task)


def make_calibration(
    request: calibration_pb2.CalibrateRequest, roots: Sequence[Path] | None, encoders: EncoderCache
) -> CalibrationWork:
    """Resolve the model and encode the prompts."""
    settings = calibration_from_proto(request.settings)
    messages = prompts_from_proto(request.prompts)
    if not messages:
        raise InvalidInputError(
            "there are no prompts", field="prompts", remedy="give the prompts of the task"
        )
    if not request.task:
        raise InvalidInputError("the task has no name", field="task", remedy="name the task")
    checkpoint = resolve_model(request.model, roots, digest=request.model_digest)
    with encoders.lend(checkpoint) as encoder:
        encoded = [encoder.encode(turns) for turns in messages[: settings.examples]]
    return CalibrationWork(
        checkpoint, calibration_prompts(encoded, settings), settings, request.task
    )


class CalibrationServicer(calibration_pb2_grpc.CalibrationServiceServicer):
    """Computes profiles, which are stored under `profiles`."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._roots = settings.model_roots
        self._store = ArtifactStore(settings.cache / "profiles")
        self._encoders = EncoderCache()
        self._turn = asyncio.Lock()
        self._resolutions = SlowThreads(_RESOLUTIONS, "resolution")

    def close(self) -> None:
        """Stop the threads after the last call."""
        self._resolutions.close()

    @override
    async def Calibrate(
        self, request: calibration_pb2.CalibrateRequest, context: object
    ) -> AsyncIterator[calibration_pb2.CalibrateResponse]:
        """Stream progress, then the profile."""
        work = await self._resolutions.run(make_calibration, request, self._roots, self._encoders)
        # The first use of the key may digest the model.
        stored = await self._resolutions.run(lambda: self._store.find(work.key))
        if stored is not None:
            yield _response(stored)
            return
        async for result in self._compute(work):
            yield _response(result)

    async def _compute(self, work: CalibrationWork) -> AsyncIterator[Progress | str]:
        """Yield progress, then the profile; stop at the next step once the caller has left."""
        loop, left = asyncio.get_running_loop(), threading.Event()
        steps: asyncio.Queue[Progress | None] = asyncio.Queue()

        def check() -> None:
            if left.is_set():
                raise CancelledError("no caller waits for the profile any more")

        def report(done: int, total: int) -> None:
            check()
            loop.call_soon_threadsafe(steps.put_nowait, (done, total))

        async def take_turn() -> str:
            async with self._turn:  # each computation loads a model
                return await asyncio.to_thread(self._find_or_make, work, check, report)

        task = asyncio.create_task(take_turn())
        task.add_done_callback(lambda _: steps.put_nowait(None))
        task.add_done_callback(_log_failure)
        try:
            yield 0, len(work.prompts)
            while (progress := await steps.get()) is not None:
                yield progress
            yield task.result()
        finally:
            left.set()

    def _find_or_make(
        self, work: CalibrationWork, check: Callable[[], None], report: Callable[[int, int], None]
    ) -> str:
        def make() -> str:
            started = time.monotonic()
            profile = calibrate(
                work.checkpoint, work.prompts, work.settings, task=work.task, on_progress=report
            )
            seconds = round(time.monotonic() - started, 3)
            logger.info("calibration done", extra={"artifact": profile.digest, "seconds": seconds})
            return profile.to_json()

        return self._store.find_or_make(work.key, make, check)

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
        return calibration_pb2.GetProfileResponse(profile=_message(text))


def _log_failure(task: asyncio.Task[str]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.info("calibration ended without a result", exc_info=error)


def _response(result: Progress | str) -> calibration_pb2.CalibrateResponse:
    if isinstance(result, str):
        return calibration_pb2.CalibrateResponse(profile=_message(result))
    done, total = result
    return calibration_pb2.CalibrateResponse(
        progress=calibration_pb2.CalibrationProgress(examples_done=done, examples_total=total)
    )


def _message(text: str) -> calibration_pb2.Profile:
    profile = Profile.from_json(text)
    return calibration_pb2.Profile(digest=profile.digest, json=profile.to_json())
