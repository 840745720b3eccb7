"""JobService: claims, heartbeats, reports and failures of workers, and the data they need."""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeVar

from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.api.report_reader import (
    MAX_ANSWERS,
    ReportReader,
    check_length,
    check_name,
)
from modnorm.services.aggregator.api.to_proto import fill_job, fill_threshold
from modnorm.services.aggregator.api.work_stream import SERVICE, CallingWorker, WorkStreams
from modnorm.services.aggregator.experiments.lifecycle import Change, with_remedy
from modnorm.services.aggregator.experiments.result_store import ResultStore
from modnorm.services.aggregator.jobs.batching import Batcher
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.jobs.report_checks import Report
from modnorm.services.aggregator.jobs.worker_requests import Claim, ClaimRequest, Heartbeat
from modnorm.services.aggregator.lab_status import Workers
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.aggregator.storage.states import TERMINAL, ArtifactKind, FailureKind
from modnorm.services.common.logging import naming
from modnorm.services.common.metrics import CallMetrics
from modnorm.services.common.shielded_tasks import ShieldedTasks
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.v1.evaluation_pb2 import (
    Call,
    ClaimJobRequest,
    ClaimJobResponse,
    FailJobRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    Lease,
    Reply,
    WorkRequest,
    WorkResponse,
)

__all__ = ["SERVICE", "JobServicer"]

BATCH_BYTES = 512 * 1024
MAX_FOUND = 32
"""Most job ids in a response to FindJobs; as many workers may search at once."""
MAX_STAGE = 100
"""Characters of the stage of an engine's start."""
MAX_REASON = 2000
"""Characters of a failure's reason and of its remedy, which are stored, sent and logged."""

_KINDS = {
    evaluation_pb2.FAILURE_KIND_INFRASTRUCTURE: FailureKind.INFRASTRUCTURE,
    evaluation_pb2.FAILURE_KIND_CANDIDATE: FailureKind.CANDIDATE,
    evaluation_pb2.FAILURE_KIND_FATAL: FailureKind.FATAL,
    evaluation_pb2.FAILURE_KIND_RELEASED: FailureKind.RELEASED,
}

ItemT = TypeVar("ItemT")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _QueuedClaim:
    request: ClaimRequest
    worker: CallingWorker


class JobServicer(evaluation_pb2_grpc.JobServiceServicer):
    """Leases jobs to workers and stores their reports."""

    def __init__(  # noqa: PLR0913, PLR0917 - wiring
        self,
        jobs: JobStore,
        results: ResultStore,
        changed: Callable[[Change], None],
        metrics: AggregatorMetrics,
        workers: Workers,
        measured: CallMetrics,
        tasks: ShieldedTasks,
    ) -> None:
        self._jobs = jobs
        self._results = results
        self._changed = changed
        self._metrics = metrics
        self._workers = workers
        self._tasks = tasks
        # Two threads, so that claims do not wait for the disk with reports. Both mostly wait.
        self._leasing = ThreadPoolExecutor(1, "leasing")
        self._reporting = ThreadPoolExecutor(1, "reporting")
        self._claims: Batcher[_QueuedClaim, Claim | None] = Batcher(self._leasing, self._claim_all)
        self._heartbeats: Batcher[Heartbeat, bool] = Batcher(self._leasing, jobs.heartbeat_all)
        self._reports: Batcher[Report, Change] = Batcher(self._reporting, jobs.report_all)
        self._stages: dict[str, str] = {}
        """The last stage of each engine that starts, by the job that it starts for."""
        self._streams = WorkStreams(self._answer, self._undelivered, measured, tasks)

    def end_streams(self) -> None:
        """End all streams and refuse new ones, before the server stops."""
        self._streams.close()

    def close(self) -> None:
        """Stop the threads after the last call has ended."""
        for thread in (self._leasing, self._reporting):
            thread.shutdown()

    @override
    async def Work(
        self, request_iterator: AsyncIterable[WorkRequest], context: object
    ) -> AsyncIterator[WorkResponse]:
        """Answer the calls of one worker."""
        async for response in self._streams.serve(request_iterator):
            yield response

    @override
    async def ReportJob(
        self, request_iterator: AsyncIterable[evaluation_pb2.ReportJobRequest], context: object
    ) -> evaluation_pb2.ReportJobResponse:
        """Store a report that does not fit one message."""
        reader = ReportReader()
        async for part in request_iterator:
            reader.check_room(part)
            reader.add(part)
        await self._tasks.run(self._report(reader.report()))
        return evaluation_pb2.ReportJobResponse()

    @override
    async def FindJobs(
        self, request: evaluation_pb2.FindJobsRequest, context: object
    ) -> evaluation_pb2.FindJobsResponse:
        """Return ids of pending jobs of a model."""
        job_ids = await asyncio.to_thread(
            self._jobs.pending_of_model, request.model_digest, MAX_FOUND
        )
        return evaluation_pb2.FindJobsResponse(job_ids=job_ids)

    @override
    async def FetchRows(
        self, request: evaluation_pb2.FetchRowsRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchRowsResponse]:
        """Stream stored rows in order."""
        text = await asyncio.to_thread(self._results.rows, request.rows_digest)
        for batch in _batches(text.split("\n")):
            yield evaluation_pb2.FetchRowsResponse(rows_json=batch)

    @override
    async def GetScaleMap(
        self, request: evaluation_pb2.GetScaleMapRequest, context: object
    ) -> evaluation_pb2.GetScaleMapResponse:
        """Return a stored scale map."""
        text = await asyncio.to_thread(
            self._results.artifact, request.digest, ArtifactKind.SCALE_MAP
        )
        return evaluation_pb2.GetScaleMapResponse(json=text)

    @override
    async def FetchLineage(
        self, request: evaluation_pb2.FetchLineageRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchLineageResponse]:
        """Stream the steps that lead to a state."""
        origin, steps = await asyncio.to_thread(
            self._results.steps, request.experiment_id, request.digest, request.after
        )
        yield evaluation_pb2.FetchLineageResponse(origin_json=origin)
        for batch in _batches(steps):
            yield evaluation_pb2.FetchLineageResponse(steps_json=batch)

    @override
    async def FetchGenerator(
        self, request: evaluation_pb2.FetchGeneratorRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchGeneratorResponse]:
        """Stream a stored generator."""
        text = await asyncio.to_thread(
            self._results.artifact, request.digest, ArtifactKind.GENERATOR
        )
        content = text.encode()
        for start in range(0, len(content), BATCH_BYTES):
            chunk = content[start : start + BATCH_BYTES]
            yield evaluation_pb2.FetchGeneratorResponse(chunk=chunk)

    @override
    async def FetchAnswerSheet(
        self, request: evaluation_pb2.FetchAnswerSheetRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchAnswerSheetResponse]:
        """Stream the answers of a finished job."""
        answers = await asyncio.to_thread(self._results.answer_sheet, request.job_id)
        for batch in _batches(answers, attrgetter("completion")):
            message = evaluation_pb2.FetchAnswerSheetResponse()
            for answer in batch:
                message.answers.add(
                    row=answer.row, completion=answer.completion, truncated=answer.truncated
                )
            yield message

    async def _answer(self, call: Call, reply: Reply, worker: CallingWorker) -> None:
        """Answer one call of a stream.

        The response is filled in inside the reply, since protobuf would copy an assigned message.
        """
        match call.WhichOneof("request"):
            case "claim":
                reply.claim.SetInParent()
                await self._claim(call.claim, reply.claim, worker)
            case "heartbeat":
                reply.heartbeat.SetInParent()
                await self._heartbeat(call.heartbeat, reply.heartbeat)
            case "report":
                reader = ReportReader()
                for part in call.report.parts:
                    reader.add(part)
                await self._report(reader.report())
                reply.report.SetInParent()
            case "fail":
                await self._fail(call.fail)
                reply.fail.SetInParent()
            case _:
                raise InvalidInputError(
                    "a call must be a claim, a heartbeat, a report or a failure",
                    field="calls.request",
                    remedy="set one of them",
                )

    async def _claim(
        self, request: ClaimJobRequest, response: ClaimJobResponse, worker: CallingWorker
    ) -> None:
        """Lease a job if it is pending and its worker is still connected.

        Raises:
            InvalidInputError: the worker has no name, or name or version is too long.
        """
        check_name(request.worker, "worker")
        check_length(request.version, "version")
        self._workers.record_claim(request.worker, request.version)
        job_request = ClaimRequest(request.job_id, request.worker)
        claim = await self._claims.submit(_QueuedClaim(job_request, worker))
        if claim is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            with naming(**claim.job.log_fields):
                logger.debug("leased")
        fill_job(response.job, claim, self._jobs.lease_seconds)

    def _release(self, lease: Lease) -> None:
        """Release a job whose worker disconnected before it received the lease."""
        request = FailJobRequest(
            lease=lease,
            kind=evaluation_pb2.FAILURE_KIND_RELEASED,
            reason="the worker disconnected before it received the lease",
        )
        self._tasks.start(self._fail(request))

    async def _heartbeat(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        """Extend a lease; the response contains whether the job is cancelled, and its threshold.

        Raises:
            InvalidInputError: the number of answers is out of range.
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        if not 0 <= request.answers_done <= MAX_ANSWERS:
            raise InvalidInputError(
                f"the number of answers must be between 0 and {MAX_ANSWERS}",
                field="answers_done",
            )
        lease = request.lease
        beat = Heartbeat(lease.job_id, lease.token, request.answers_done, request.parked)
        response.cancel = await self._heartbeats.submit(beat)
        if request.engine_stage != self._stages.get(lease.job_id, "") and not response.cancel:
            await self._record_start(lease, request.engine_stage[:MAX_STAGE])
        threshold = self._jobs.cached_threshold(request.experiment_id, request.candidate)
        if threshold is not None:
            fill_threshold(response.threshold, threshold)

    async def _record_start(self, lease: Lease, stage: str) -> None:
        """Store what the start of an engine does now; the empty stage is its end."""
        self._stages[lease.job_id] = stage
        if not stage:
            del self._stages[lease.job_id]
        change = await asyncio.to_thread(self._jobs.record_start, lease.job_id, lease.token, stage)
        self._changed(change)

    async def _report(self, report: Report) -> None:
        """Store the result of a job and follow it up.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: another worker has the job, or it is cancelled.
            InvalidInputError: the report does not fit the job.
        """
        self._stages.pop(report.job_id, None)
        change = await self._reports.submit(report)
        self._metrics.reported(change)
        canaries = self._workers.canaries
        if canaries.note(report.worker, report.environment):
            self._metrics.deviating_workers.set(len(canaries.deviations()))
        self._follow_up(change, logging.DEBUG, "scored")

    async def _fail(self, request: FailJobRequest) -> None:
        """Store that an attempt failed and follow it up.

        Raises:
            InvalidInputError: the request names no kind of failure.
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise InvalidInputError("no kind of failure is named", field="kind")
        lease = request.lease
        reason = request.reason[:MAX_REASON] or "no reason given"
        remedy = request.remedy[:MAX_REASON]
        self._stages.pop(lease.job_id, None)
        change = await asyncio.to_thread(
            self._jobs.fail,
            lease.job_id,
            lease.token,
            kind,
            reason,
            remedy,
            unfit=request.unfit,
        )
        self._metrics.failed(change, kind)
        level = logging.INFO if kind is FailureKind.RELEASED else logging.WARNING
        self._follow_up(change, level, f"attempt {kind}: {with_remedy(reason, remedy)}")

    def _claim_all(self, claims: Sequence[_QueuedClaim]) -> Sequence[Claim | Exception | None]:
        """Lease the jobs of a batch; None for callers that have disconnected."""
        connected = [not claim.worker.has_left for claim in claims]
        requests = [claim.request for claim, here in zip(claims, connected, strict=True) if here]
        leased = iter(self._jobs.claim_all(requests) if requests else ())
        return [next(leased) if here else None for here in connected]

    def _follow_up(self, change: Change, level: int, message: str) -> None:
        """Wake watchers and publish jobs; log the end of the attempt and a new phase or end."""
        job, experiment = change.job, change.experiment
        if job is None or experiment is None:
            self._changed(change)
            return
        with naming(**job.log_fields):
            logger.log(level, message)
            if experiment.state in TERMINAL or len(change.pending) > 1:
                logger.info("experiment is %s", experiment.state)
            self._changed(change)

    def _undelivered(self, reply: Reply) -> None:
        """Release the lease of a claim whose worker disconnected before the reply."""
        if reply.claim.HasField("job"):
            self._release(reply.claim.job.lease)


def _batches(items: Sequence[ItemT], text: Callable[[ItemT], str] = str) -> Iterator[list[ItemT]]:
    """Yield items with their texts in messages of bounded size."""
    batch: list[ItemT] = []
    total = 0
    for item in items:
        size = len(text(item))
        if batch and total + size > BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    yield batch
