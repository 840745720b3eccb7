"""JobService: the evaluators' side of the aggregator."""

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc.aio
from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.v1.evaluation_pb2 import WorkRequest, WorkResponse
from services.aggregator.background import Changes, LeftWork, job_names
from services.aggregator.heartbeats import Heartbeats
from services.aggregator.incoming import IncomingReport, check_length, check_name
from services.aggregator.lanes import Lane
from services.aggregator.messages import fill_job
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.reports import Report
from services.aggregator.states import TERMINAL, ArtifactKind
from services.aggregator.status import Workers
from services.aggregator.stores import Stores
from services.aggregator.stores.jobs import Change, Claim, ClaimRequest, FailureKind
from services.aggregator.streams import WorkStreams
from services.common.logging import naming
from services.common.metrics import CallMetrics

SERVICE = "modnorm.v1.JobService"
BATCH_BYTES = 512 * 1024
MAX_FOUND = 32
"""Jobs named to a worker that looks for some: as many workers may look at once."""
MAX_REASON = 2000
"""Characters of why an attempt failed: it is stored with its job, sent to watchers and logged."""

_KINDS = {
    evaluation_pb2.FAILURE_KIND_INFRASTRUCTURE: FailureKind.INFRASTRUCTURE,
    evaluation_pb2.FAILURE_KIND_CANDIDATE: FailureKind.CANDIDATE,
    evaluation_pb2.FAILURE_KIND_FATAL: FailureKind.FATAL,
    evaluation_pb2.FAILURE_KIND_RELEASED: FailureKind.RELEASED,
}

logger = logging.getLogger(__name__)


class JobServicer(evaluation_pb2_grpc.JobServiceServicer):
    """Leases jobs to workers and takes their reports.

    Args:
        stores: What is stored.
        changes: What to do about what reports change.
        metrics: What is counted.
        workers: Remembers who asked for jobs.
        measured: Counts the calls on streams.
    """

    def __init__(
        self,
        stores: Stores,
        changes: Changes,
        metrics: AggregatorMetrics,
        workers: Workers,
        measured: CallMetrics,
    ) -> None:
        self._workers = workers
        self._stores = stores
        self._changes = changes
        self._metrics = metrics
        jobs = stores.jobs
        # Two: claims need not wait for the disk with reports. Both compute little and wait much.
        self._threads = leasing, reporting = (
            ThreadPoolExecutor(1, "leasing"),
            ThreadPoolExecutor(1, "reporting"),
        )
        self._claims: Lane[ClaimRequest, Claim | None] = Lane(
            leasing, jobs.claim_all, take_back=self._take_back
        )
        self._heartbeats = Heartbeats(jobs, leasing)
        self._reports: Lane[Report, Change] = Lane(reporting, jobs.report_all, self._reported)
        self._left = LeftWork()
        self._streams = WorkStreams(self._answer, measured, self._left, self._lost)

    def end_streams(self) -> None:
        """Let streams end, and open no others: the server is about to stop."""
        self._streams.close()

    async def settle(self) -> None:
        """Wait for calls whose worker has gone, for a server that takes no other any more."""
        await self._reports.settle()
        await self._claims.settle()
        await self._left.settle()

    def close(self) -> None:
        """Let go of the threads; used after `settle`."""
        for thread in self._threads:
            thread.shutdown()

    @override
    async def ClaimJob(
        self,
        request: evaluation_pb2.ClaimJobRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.ClaimJobRequest, evaluation_pb2.ClaimJobResponse
        ],
    ) -> evaluation_pb2.ClaimJobResponse:
        """Lease a job, if it is still to be done."""
        response = evaluation_pb2.ClaimJobResponse()
        await self._claim(request, response)
        return response

    def _claim(
        self, request: evaluation_pb2.ClaimJobRequest, response: evaluation_pb2.ClaimJobResponse
    ) -> Awaitable[None]:
        """Ask for a job; what is returned fills in the answer."""
        check_name(request.worker, "worker")
        check_length(request.version, "version")
        self._workers.heard(request.worker, request.version)
        asked = self._claims.submit(ClaimRequest(request.job_id, request.worker))
        return self._claimed(asked, response)

    async def _claimed(
        self, asked: "asyncio.Future[Claim | None]", response: evaluation_pb2.ClaimJobResponse
    ) -> None:
        claim = await asked
        if claim is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            with naming(**job_names(claim.job)):
                logger.debug("leased")
        fill_job(response.job, claim, self._stores.jobs.lease_seconds)

    def _take_back(self, _: ClaimRequest, claim: Claim | None) -> None:
        """Hand back a job whose worker went before it had it: nobody else could begin."""
        if claim is not None:
            lease = evaluation_pb2.Lease(job_id=claim.job.id, token=claim.job.token)
            self._hand_back(lease)

    def _lost(self, response: WorkResponse) -> None:
        """Do the same where the job was claimed by a message that is not answered."""
        if response.claim.HasField("job"):
            self._hand_back(response.claim.job.lease)

    def _hand_back(self, lease: evaluation_pb2.Lease) -> None:
        kind, reason = evaluation_pb2.FAILURE_KIND_RELEASED, "its worker went before it had it"
        request = evaluation_pb2.FailJobRequest(lease=lease, kind=kind, reason=reason)
        self._left.keep(self._store_failure(request))

    @override
    async def Heartbeat(
        self,
        request: evaluation_pb2.HeartbeatRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.HeartbeatRequest, evaluation_pb2.HeartbeatResponse
        ],
    ) -> evaluation_pb2.HeartbeatResponse:
        """Extend leases, and tell whether the work is still wanted."""
        response = evaluation_pb2.HeartbeatResponse()
        await self._heartbeats.answer(request, response)
        return response

    @override
    async def ReportJob(
        self,
        request_iterator: AsyncIterable[evaluation_pb2.ReportJobRequest],
        context: grpc.aio.ServicerContext[
            evaluation_pb2.ReportJobRequest, evaluation_pb2.ReportJobResponse
        ],
    ) -> evaluation_pb2.ReportJobResponse:
        """Store the result of a job."""
        incoming = IncomingReport()
        async for part in request_iterator:
            incoming.check_room(part)
            incoming.add(part)
        await self._reports.submit(incoming.whole())
        return evaluation_pb2.ReportJobResponse()

    def _whole_report(self, message: evaluation_pb2.WholeReport) -> Awaitable[object]:
        incoming = IncomingReport()
        for part in message.parts:
            incoming.add(part)
        return self._reports.submit(incoming.whole())

    def _reported(self, report: Report, change: Change) -> None:
        """Count a report that is stored, and tell everybody concerned."""
        self._metrics.reported(change, report)
        canaries = self._workers.canaries
        if canaries.note(report.worker, report.environment):
            self._metrics.deviating_workers.set(len(canaries.deviations()))
        self._follow_up(change, logging.DEBUG, "scored")

    @override
    async def FailJob(
        self,
        request: evaluation_pb2.FailJobRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.FailJobRequest, evaluation_pb2.FailJobResponse
        ],
    ) -> evaluation_pb2.FailJobResponse:
        """Store that an attempt failed."""
        await self._fail(request)
        return evaluation_pb2.FailJobResponse()

    def _fail(self, request: evaluation_pb2.FailJobRequest) -> Awaitable[None]:
        """Have a failure stored, also where its worker goes at once, as those that stop do."""
        return asyncio.shield(self._left.keep(self._store_failure(request)))

    async def _store_failure(self, request: evaluation_pb2.FailJobRequest) -> None:
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise InvalidInputError("name a kind of failure", field="kind")
        lease = request.lease
        reason = request.reason[:MAX_REASON] or "no reason given"
        change = await asyncio.to_thread(
            self._stores.jobs.fail, lease.job_id, lease.token, kind, reason
        )
        self._metrics.failed(change, kind)
        level = logging.INFO if kind is FailureKind.RELEASED else logging.WARNING
        self._follow_up(change, level, f"attempt {kind}: {reason}")

    @override
    async def Work(
        self,
        request_iterator: AsyncIterable[WorkRequest],
        context: grpc.aio.ServicerContext[WorkRequest, WorkResponse],
    ) -> AsyncIterator[WorkResponse]:
        """Answer the calls of one worker."""
        async for response in self._streams.serve(request_iterator):
            yield response

    @override
    async def FindJobs(
        self,
        request: evaluation_pb2.FindJobsRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.FindJobsRequest, evaluation_pb2.FindJobsResponse
        ],
    ) -> evaluation_pb2.FindJobsResponse:
        """Name pending jobs of a model."""
        found = await asyncio.to_thread(
            self._stores.jobs.pending_of_model, request.model_digest, MAX_FOUND
        )
        return evaluation_pb2.FindJobsResponse(job_ids=found)

    @override
    async def FetchRows(
        self,
        request: evaluation_pb2.FetchRowsRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.FetchRowsRequest, evaluation_pb2.FetchRowsResponse
        ],
    ) -> AsyncIterator[evaluation_pb2.FetchRowsResponse]:
        """Stream stored rows in order."""
        text = await asyncio.to_thread(
            self._stores.results.artifact, request.rows_digest, ArtifactKind.ROWS
        )
        for batch in _batches(text.split("\n")):
            yield evaluation_pb2.FetchRowsResponse(rows_json=batch)

    @override
    async def GetScaleMap(
        self,
        request: evaluation_pb2.GetScaleMapRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.GetScaleMapRequest, evaluation_pb2.GetScaleMapResponse
        ],
    ) -> evaluation_pb2.GetScaleMapResponse:
        """Return a stored scale map."""
        text = await asyncio.to_thread(
            self._stores.results.artifact, request.digest, ArtifactKind.SCALE_MAP
        )
        return evaluation_pb2.GetScaleMapResponse(json=text)

    @override
    async def FetchLineage(
        self,
        request: evaluation_pb2.FetchLineageRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.FetchLineageRequest, evaluation_pb2.FetchLineageResponse
        ],
    ) -> AsyncIterator[evaluation_pb2.FetchLineageResponse]:
        """Stream the steps that lead to a state."""
        origin, steps = await asyncio.to_thread(
            self._stores.results.steps, request.experiment_id, request.digest, request.after
        )
        yield evaluation_pb2.FetchLineageResponse(origin_json=origin)
        for batch in _batches(steps):
            yield evaluation_pb2.FetchLineageResponse(steps_json=batch)

    @override
    async def FetchGenerator(
        self,
        request: evaluation_pb2.FetchGeneratorRequest,
        context: grpc.aio.ServicerContext[
            evaluation_pb2.FetchGeneratorRequest, evaluation_pb2.FetchGeneratorResponse
        ],
    ) -> AsyncIterator[evaluation_pb2.FetchGeneratorResponse]:
        """Stream a stored generator."""
        text = await asyncio.to_thread(
            self._stores.results.artifact, request.digest, ArtifactKind.GENERATOR
        )
        content = text.encode()
        for start in range(0, len(content), BATCH_BYTES):
            chunk = content[start : start + BATCH_BYTES]
            yield evaluation_pb2.FetchGeneratorResponse(chunk=chunk)

    def _answer(self, call: WorkRequest, response: WorkResponse) -> Awaitable[object]:
        """Begin to answer one call on a stream as if it had come by itself.

        Answers are filled in where they are sent from: each copy would be encoded and decoded.
        """
        match call.WhichOneof("call"):
            case "claim":
                response.claim.SetInParent()
                return self._claim(call.claim, response.claim)
            case "heartbeat":
                response.heartbeat.SetInParent()
                beats = self._heartbeats.answer(call.heartbeat, response.heartbeat)
                return asyncio.create_task(beats)
            case "report":
                response.report.SetInParent()
                return self._whole_report(call.report)
            case "fail":
                response.fail.SetInParent()
                return self._fail(call.fail)
            case _:
                raise InvalidInputError("a call is a claim, heartbeat, report or failure")

    def _follow_up(self, change: Change, level: int, message: str) -> None:
        """Tell everybody concerned; say in the log what happened, and what it led to."""
        found = change.experiment
        moved = found is not None and (found.state in TERMINAL or len(change.pending) > 1)
        if change.job is None or found is None or not (moved or logger.isEnabledFor(level)):
            self._changes.follow_up(change)
            return
        # Not beyond this call, which others may follow on the same stream.
        with naming(**job_names(change.job)):
            logger.log(level, message)
            if moved:
                logger.info("experiment is %s", found.state)
            self._changes.follow_up(change)


def _batches(rows: Sequence[str]) -> Iterator[list[str]]:
    """Yield rows in messages of bounded size."""
    batch: list[str] = []
    size = 0
    for row in rows:
        if batch and size + len(row) > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row)
    yield batch
