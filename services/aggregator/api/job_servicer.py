"""JobService: the API of the aggregator for evaluators."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence

from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.v1 import evaluation_pb2, evaluation_pb2_grpc
from modnorm.v1.evaluation_pb2 import Call, Reply, WorkRequest, WorkResponse
from services.aggregator.api.report_reader import ReportReader
from services.aggregator.api.work_stream import SERVICE, Caller, WorkStreams
from services.aggregator.api.worker_calls import WorkerCalls
from services.aggregator.experiments.lifecycle import Change
from services.aggregator.experiments.result_store import ResultStore
from services.aggregator.jobs.job_store import JobStore
from services.aggregator.lab_status import Workers
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.storage.states import ArtifactKind
from services.common.metrics import CallMetrics
from services.common.shielded_tasks import ShieldedTasks

__all__ = ["SERVICE", "JobServicer"]

BATCH_BYTES = 512 * 1024
MAX_FOUND = 32
"""Most job ids in a response to FindJobs; as many workers may search at once."""


class JobServicer(evaluation_pb2_grpc.JobServiceServicer):
    """Leases jobs to workers and stores their reports."""

    def __init__(  # noqa: PLR0913, PLR0917 - wiring
        self,
        jobs: JobStore,
        results: ResultStore,
        follow_up: Callable[[Change], None],
        metrics: AggregatorMetrics,
        workers: Workers,
        measured: CallMetrics,
        tasks: ShieldedTasks,
    ) -> None:
        self._jobs = jobs
        self._results = results
        self._tasks = tasks
        self._calls = WorkerCalls(jobs, follow_up, metrics, workers, tasks)
        self._streams = WorkStreams(self._answer, self._undelivered, measured, tasks)

    def end_streams(self) -> None:
        """End all streams and refuse new ones, before the server stops."""
        self._streams.close()

    def close(self) -> None:
        """Stop the threads after the last call has ended."""
        self._calls.close()

    @override
    async def Work(
        self, request_iterator: AsyncIterable[WorkRequest], context: object
    ) -> AsyncIterator[WorkResponse]:
        """Answer the calls of one worker."""
        async for response in self._streams.serve(request_iterator):
            yield response

    async def _answer(self, call: Call, reply: Reply, caller: Caller) -> None:
        """Answer one call of a stream.

        The response is filled in inside the reply, since protobuf would copy an assigned message.
        """
        match call.WhichOneof("request"):
            case "claim":
                reply.claim.SetInParent()
                await self._calls.claim(call.claim, reply.claim, caller)
            case "heartbeat":
                reply.heartbeat.SetInParent()
                await self._calls.heartbeat(call.heartbeat, reply.heartbeat)
            case "report":
                reader = ReportReader()
                for part in call.report.parts:
                    reader.add(part)
                await self._calls.report(reader.report())
                reply.report.SetInParent()
            case "fail":
                await self._calls.fail(call.fail)
                reply.fail.SetInParent()
            case _:
                raise InvalidInputError(
                    "a call must be a claim, a heartbeat, a report or a failure",
                    field="calls.request",
                    remedy="set one of them",
                )

    def _undelivered(self, reply: Reply) -> None:
        """Release the lease of a claim whose worker disconnected before the reply."""
        if reply.claim.HasField("job"):
            self._calls.release(reply.claim.job.lease)

    @override
    async def ReportJob(
        self, request_iterator: AsyncIterable[evaluation_pb2.ReportJobRequest], context: object
    ) -> evaluation_pb2.ReportJobResponse:
        """Store a report that does not fit one message."""
        reader = ReportReader()
        async for part in request_iterator:
            reader.check_room(part)
            reader.add(part)
        await self._tasks.run(self._calls.report(reader.report()))
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
        text = await asyncio.to_thread(
            self._results.artifact, request.rows_digest, ArtifactKind.ROWS
        )
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
