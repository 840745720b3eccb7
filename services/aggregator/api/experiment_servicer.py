"""ExperimentService: clients create, watch, read and cancel experiments."""

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.api.job_servicer import model_of
from modnorm.services.aggregator.experiments.admission import Admission, Admissions
from modnorm.services.aggregator.experiments.experiment_setup import Conductor
from modnorm.services.aggregator.experiments.experiment_store import (
    ExperimentRecord,
    ExperimentStore,
)
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.experiments.messages import (
    event_message,
    experiment_message,
    experiment_summary,
)
from modnorm.services.aggregator.experiments.run_directories import RunDirectories
from modnorm.services.aggregator.notifications import Notifier
from modnorm.services.aggregator.storage.tables import TERMINAL, UNSUCCESSFUL
from modnorm.services.common.access import current_caller
from modnorm.services.common.background import ShieldedTasks, SlowThreads
from modnorm.v1 import evaluation_pb2, experiment_pb2, experiment_pb2_grpc
from modnorm.wire.conversions import spec_from_proto

SERVICE = "modnorm.v1.ExperimentService"
MAX_REQUEST_ID = 128
MAX_PAGE = 1000
CHUNK_BYTES = 512 * 1024
PAGE_BYTES = 2 * 2**20
"""Size that ends a page of experiments, well below gRPC's default message limit."""
MAX_SPEC_BYTES = PAGE_BYTES
"""Most calls of an experiment read its spec."""
_WATCH_BATCH = 200
_WRITERS = 8
"""Calls at once that may make a run directory. Each takes seconds, and all but one wait."""


class ExperimentServicer(experiment_pb2_grpc.ExperimentServiceServicer):
    """Creates, shows, watches and cancels experiments."""

    def __init__(  # noqa: PLR0913 - wiring
        self,
        *,
        experiments: ExperimentStore,
        runs: RunDirectories,
        admissions: Admissions,
        conductor: Conductor,
        notifier: Notifier,
        follow_up: Callable[[Change], None],
        tasks: ShieldedTasks,
        on_create: Callable[[evaluation_pb2.Job], None] | None,
    ) -> None:
        self._experiments = experiments
        self._runs = runs
        self._admissions = admissions
        self._conductor = conductor
        self._notifier = notifier
        self._follow_up = follow_up
        self._tasks = tasks
        self._on_create = on_create
        self._writers = SlowThreads(_WRITERS, "run-writer")

    def close(self) -> None:
        """Stop the threads, after the last call."""
        self._writers.close()

    @override
    async def CreateExperiment(
        self, request: experiment_pb2.CreateExperimentRequest, context: object
    ) -> experiment_pb2.CreateExperimentResponse:
        """Validate a whole experiment, then store it.

        A repeated request returns the same one, and is refused if its files changed.
        """
        printable = all(unicodedata.category(letter) != "Cc" for letter in request.request_id)
        if not 0 < len(request.request_id) <= MAX_REQUEST_ID or not printable:
            raise InvalidInputError(
                f"a request id must have 1 to {MAX_REQUEST_ID} characters, no control characters",
                field="request_id",
            )
        find, tenant = self._experiments.find, current_caller().tenant
        if request.HasField("questions"):
            await self._check_visible(request.questions.of)
            admit = self._experiments.admit_questions
            admission = await asyncio.to_thread(admit, request.questions)
            digest = admission.inputs["spec_digest"]
            record = await asyncio.to_thread(find, request.request_id, digest, tenant)
            if record is None:
                await self._admissions.check_questions(admission)
        else:
            if (size := request.spec.ByteSize()) > MAX_SPEC_BYTES:
                raise InvalidInputError(
                    f"the spec takes {size} bytes, the limit is {MAX_SPEC_BYTES}",
                    field="spec",
                    remedy="shorten it, for example choose the radius with fewer rows",
                )
            spec = spec_from_proto(request.spec)
            record = await asyncio.to_thread(find, request.request_id, spec.digest, tenant)
            if record is None:
                admission = await self._admissions.admit(spec)
            elif record.experiment.state not in UNSUCCESSFUL:
                await self._admissions.check_unchanged(record.experiment)
        if record is None:
            record = await self._tasks.run(self._create(request.request_id, admission, tenant))
        if self._on_create is not None and record.experiment.state not in TERMINAL:
            self._on_create(model_of(record.experiment))
        return experiment_pb2.CreateExperimentResponse(experiment=experiment_message(record))

    @override
    async def GetExperiment(
        self, request: experiment_pb2.GetExperimentRequest, context: object
    ) -> experiment_pb2.GetExperimentResponse:
        await self._check_visible(request.id)
        record = await asyncio.to_thread(self._experiments.get, request.id)
        return experiment_pb2.GetExperimentResponse(experiment=experiment_message(record))

    @override
    async def ListExperiments(
        self, request: experiment_pb2.ListExperimentsRequest, context: object
    ) -> experiment_pb2.ListExperimentsResponse:
        """List experiments, newest first; large pages end early."""
        if not 0 <= request.page_size <= MAX_PAGE:
            raise InvalidInputError(f"a page must have 1 to {MAX_PAGE} rows", field="page_size")
        size, scope = request.page_size or 50, current_caller().scope
        page, after = self._experiments.page, request.page_token
        experiments = await asyncio.to_thread(page, size + 1, after, scope)
        response, room = experiment_pb2.ListExperimentsResponse(), PAGE_BYTES
        for experiment, packed in experiments[:size]:
            progress = experiment_pb2.Progress.FromString(packed)
            summary = experiment_summary(experiment, progress)
            room -= summary.ByteSize()
            if room < 0 and response.experiments:
                break
            response.experiments.append(summary)
        shown = len(response.experiments)
        if len(experiments) > shown:
            response.next_page_token = experiments[shown - 1][0].id
        return response

    @override
    async def WatchExperiment(
        self, request: experiment_pb2.WatchExperimentRequest, context: object
    ) -> AsyncIterator[experiment_pb2.WatchExperimentResponse]:
        """Stream stored events after a cursor, then new ones, until the experiment has ended."""
        await self._check_visible(request.id)
        cursor, ended = request.cursor, False
        while not ended:
            changed = self._notifier.next_change(request.id)
            events, ended = await asyncio.to_thread(
                self._experiments.events, request.id, cursor, _WATCH_BATCH
            )
            for event in events:
                yield event_message(event)
                cursor = event.cursor
            if not events and not ended:
                await changed.wait()

    @override
    async def CancelExperiment(
        self, request: experiment_pb2.CancelExperimentRequest, context: object
    ) -> experiment_pb2.CancelExperimentResponse:
        """Cancel an experiment unless it has ended."""
        await self._check_visible(request.id)
        record = await self._tasks.run(self._cancel(request.id))
        return experiment_pb2.CancelExperimentResponse(experiment=experiment_message(record))

    @override
    async def ListRunFiles(
        self, request: experiment_pb2.ListRunFilesRequest, context: object
    ) -> experiment_pb2.ListRunFilesResponse:
        """List the files of a finished experiment's directory; the first call writes it."""
        await self._check_visible(request.experiment_id)
        files = await self._writers.run(self._runs.files, request.experiment_id)
        return experiment_pb2.ListRunFilesResponse(files=files)

    @override
    async def GetRunFile(
        self, request: experiment_pb2.GetRunFileRequest, context: object
    ) -> AsyncIterator[experiment_pb2.GetRunFileResponse]:
        """Stream a file of a finished experiment's directory from an offset."""
        await self._check_visible(request.experiment_id)
        if request.offset < 0:
            raise InvalidInputError("an offset is not negative", field="offset")
        path = await self._writers.run(self._runs.file, request.experiment_id, request.name)
        with path.open("rb") as file:
            file.seek(min(request.offset, path.stat().st_size))  # seek fails far beyond it
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield experiment_pb2.GetRunFileResponse(chunk=chunk)

    async def _create(
        self, request_id: str, admission: Admission, tenant: str
    ) -> ExperimentRecord:
        """Store an experiment and start its setup."""
        store = self._experiments.create
        record = await asyncio.to_thread(store, request_id, admission, tenant)
        if admission.asked_run:
            self._follow_up(Change(record.experiment.id, pending=True))
        else:
            self._conductor.drive(record.experiment.id)
        return record

    async def _cancel(self, experiment_id: str) -> ExperimentRecord:
        """Store a cancellation; wake watchers."""
        record = await asyncio.to_thread(self._experiments.cancel, experiment_id)
        self._conductor.drop(experiment_id)
        self._follow_up(Change(experiment_id))
        return record

    async def _check_visible(self, experiment_id: str) -> None:
        """Raise the error of a missing experiment for experiments of other tenants."""
        scope = current_caller().scope
        if scope is not None:
            await asyncio.to_thread(self._experiments.check_visible, experiment_id, scope)
