"""JobService: claims, heartbeats, reports and failures of workers, and the data they need."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from typing_extensions import override

from modnorm.errors import InvalidInputError
from modnorm.services.aggregator.experiments.experiment_store import ExperimentStore
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.jobs.job_store import JobStore
from modnorm.services.aggregator.jobs.leases import Claim
from modnorm.services.aggregator.lab_status import Workers
from modnorm.services.aggregator.metrics import AggregatorMetrics
from modnorm.services.aggregator.storage.tables import (
    Experiment,
    FailureKind,
    JobState,
    parsed_spec,
)
from modnorm.services.common.background import ShieldedTasks, SlowThreads
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.common.logging import naming
from modnorm.v1 import common_pb2, evaluation_pb2, evaluation_pb2_grpc
from modnorm.v1.evaluation_pb2 import (
    ClaimJobRequest,
    ClaimJobResponse,
    FailJobRequest,
    FailJobResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ReportJobRequest,
    ReportJobResponse,
)
from modnorm.wire.conversions import descriptor_to_proto, section_to_proto
from modnorm.wire.run_messages import with_remedy

LARGEST_BATCH = 256
_BATCHES = 4
"""Batches of a batcher at once. One with votes takes seconds and a database connection."""


AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")


class CallBatcher(Generic[AskedT, AnswerT]):
    """Passes what many calls ask to a function in batches, in order; used in one event loop.

    While a thread works on a batch, further calls of its group wait for the next one.
    """

    def __init__(
        self, answer: Callable[[Sequence[AskedT]], Sequence[AnswerT | Exception]]
    ) -> None:
        self._answer = answer
        self._threads = SlowThreads(_BATCHES, "batch")
        self._waiting: dict[str, list[tuple[AskedT, asyncio.Future[AnswerT]]]] = {}
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self.close = self._threads.close

    async def submit(self, asked: AskedT, group: str = "") -> AnswerT:
        """Return the answer to one call, or raise its error."""
        future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, []).append((asked, future))
        if group not in self._drivers:
            self._drivers[group] = asyncio.create_task(self._drive(group))
        return await future

    async def _drive(self, group: str) -> None:
        """Work until none of a group is waiting."""
        waiting = self._waiting[group]
        while waiting:
            batch = waiting[:LARGEST_BATCH]
            del waiting[:LARGEST_BATCH]
            answers: Sequence[AnswerT | Exception]
            try:
                answers = await self._threads.run(self._answer, [asked for asked, _ in batch])
            except Exception as error:  # noqa: BLE001 - later calls must not wait forever
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.cancelled():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        del self._waiting[group], self._drivers[group]


SERVICE = "modnorm.v1.JobService"
MAX_LEASES = 8
"""Most leases in a heartbeat: about twice the number that a worker can hold."""
MAX_ANSWERS = 1_000_000
MAX_UNFIT = 1_000
"""Most experiments that a claim leaves to other workers."""
MAX_NAME = 200
"""Characters of a worker's name or version, which are stored and displayed."""
MAX_ENVIRONMENT = 16 * 2**10
"""Characters of an environment's names and values, which are stored with each candidate."""
BATCH_BYTES = 512 * 1024
MAX_STAGE = 100
"""Characters of the stage of an engine's start."""
MAX_STARTS = 10_000
"""Most leases whose last stage is kept."""
MAX_REASON = 2000
"""Characters of a failure's reason and of its remedy, which are stored, sent and logged."""

_KINDS = {
    evaluation_pb2.FailureKind.Value(f"FAILURE_KIND_{kind.name}"): kind for kind in FailureKind
}

logger = logging.getLogger(__name__)


class JobServicer(evaluation_pb2_grpc.JobServiceServicer):
    """Leases jobs to workers and stores their reports."""

    def __init__(  # noqa: PLR0913, PLR0917 - wiring
        self,
        jobs: JobStore,
        experiments: ExperimentStore,
        publish: Callable[[Change], None],
        metrics: AggregatorMetrics,
        workers: Workers,
        tasks: ShieldedTasks,
    ) -> None:
        self._jobs = jobs
        self._experiments = experiments
        self._publish = publish
        self._metrics = metrics
        self._workers = workers
        self._tasks = tasks
        self._claims = CallBatcher(jobs.claim_all)
        self._reports = CallBatcher(jobs.report_all)
        self._stages: BoundedDict[tuple[str, int], str] = BoundedDict(MAX_STARTS)
        """The last stage of each engine that starts, by job and token of the lease."""

    def close(self) -> None:
        """Stop the threads, after the last call."""
        self._claims.close()
        self._reports.close()

    @override
    async def ClaimJob(self, request: ClaimJobRequest, context: object) -> ClaimJobResponse:
        """Lease the next job for a worker; nothing if none is pending that it can do."""
        if not request.worker:
            raise InvalidInputError(
                "the worker has no name", field="worker", remedy="give it a name"
            )
        _check_length(request.worker, "worker")
        _check_length(request.version, "version")
        if len(request.unfit_experiments) > MAX_UNFIT:
            raise InvalidInputError(
                f"a claim names at most {MAX_UNFIT} experiments", field="unfit_experiments"
            )
        return await self._tasks.run(self._claim(request), self._release)

    @override
    async def Heartbeat(self, request: HeartbeatRequest, context: object) -> HeartbeatResponse:
        if len(request.leases) > MAX_LEASES:
            raise InvalidInputError(
                f"a call extends at most {MAX_LEASES} leases",
                field="leases",
                remedy="send several",
            )
        if not all(0 <= one.answers_done <= MAX_ANSWERS for one in request.leases):
            raise InvalidInputError(
                f"the number of answers must be between 0 and {MAX_ANSWERS}",
                field="leases.answers_done",
            )
        states = await asyncio.to_thread(self._jobs.heartbeat, request.leases)
        for one, state in zip(request.leases, states, strict=True):
            lease, stage = (one.lease.job_id, one.lease.token), one.engine_stage[:MAX_STAGE]
            is_extended = not state.cancel and not state.lost
            last = self._stages.get(lease, "")
            if is_extended and stage != last:
                self._stages[lease] = stage  # the empty stage is the end of a start
                await self._tasks.run(self._record_stage(lease, stage, last))
        return HeartbeatResponse(leases=states)

    async def _record_stage(self, lease: tuple[str, int], stage: str, last: str) -> None:
        """Store a new stage of an engine's start and wake watchers."""
        try:
            change = await asyncio.to_thread(self._jobs.record_start, *lease, stage)
        except Exception:  # not stored: the next heartbeat tries again
            if self._stages.get(lease) == stage:
                self._stages[lease] = last
            raise
        self._publish(change)

    @override
    async def ReportJob(self, request: ReportJobRequest, context: object) -> ReportJobResponse:
        """Store the result of a job and follow it up."""
        _check_length(request.worker, "worker")
        size = sum(len(name) + len(value) for name, value in request.environment.items())
        if size > MAX_ENVIRONMENT:
            raise InvalidInputError(
                f"{size} characters are more than {MAX_ENVIRONMENT}",
                field="environment",
                remedy="report only entries that answers depend on",
            )
        await self._tasks.run(self._report(request))
        return ReportJobResponse()

    @override
    async def FailJob(self, request: FailJobRequest, context: object) -> FailJobResponse:
        """Store that an attempt failed and follow it up."""
        await self._tasks.run(self._fail(request))
        return FailJobResponse()

    @override
    async def FetchArtifact(
        self, request: evaluation_pb2.FetchArtifactRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchArtifactResponse]:
        text = await asyncio.to_thread(self._experiments.artifact, request.digest)
        content = text.encode()
        for start in range(0, len(content), BATCH_BYTES):
            chunk = content[start : start + BATCH_BYTES]
            yield evaluation_pb2.FetchArtifactResponse(chunk=chunk)

    @override
    async def FetchLineage(
        self, request: evaluation_pb2.FetchLineageRequest, context: object
    ) -> AsyncIterator[evaluation_pb2.FetchLineageResponse]:
        """Stream the steps that lead to a state."""
        origin, steps = await asyncio.to_thread(
            self._experiments.steps, request.experiment_id, request.digest, request.after
        )
        yield evaluation_pb2.FetchLineageResponse(origin_json=origin)
        for page in _pages(steps):
            yield evaluation_pb2.FetchLineageResponse(steps_json=page)

    async def _claim(self, request: ClaimJobRequest) -> ClaimJobResponse:
        self._workers.record_claim(request.worker, request.version)
        claim = await self._claims.submit(request)
        if claim is None:
            return ClaimJobResponse()
        with naming(**claim.job.log_fields):
            logger.debug("leased")
        return ClaimJobResponse(job=_job_message(claim, self._jobs.lease_seconds))

    def _release(self, response: ClaimJobResponse) -> None:
        """Release the lease of a worker that disconnected before it received the lease."""
        if response.HasField("job"):
            request = FailJobRequest(
                lease=response.job.lease,
                kind=evaluation_pb2.FAILURE_KIND_RELEASED,
                reason="the worker disconnected before it received the lease",
            )
            self._tasks.start(self._fail(request))

    async def _report(self, report: ReportJobRequest) -> None:
        # The votes at an experiment's end take seconds, for which no other experiment waits.
        change = await self._reports.submit(report, report.experiment_id)
        self._metrics.reported(change)
        self._workers.canaries.note(report.worker, report.environment)
        self._follow_up(change, logging.DEBUG, "scored")

    async def _fail(self, request: FailJobRequest) -> None:
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise InvalidInputError("no kind of failure is named", field="kind")
        lease = request.lease
        reason = request.reason[:MAX_REASON] or "no reason given"
        remedy = request.remedy[:MAX_REASON]
        change = await asyncio.to_thread(
            self._jobs.fail, lease.job_id, lease.token, kind, reason, remedy, unfit=request.unfit
        )
        self._metrics.failed(change)
        level = logging.INFO if kind is FailureKind.RELEASED else logging.WARNING
        self._follow_up(change, level, f"attempt {kind}: {with_remedy(reason, remedy)}")

    def _follow_up(self, change: Change, level: int, message: str) -> None:
        """Wake watchers and publish jobs; log the end of the attempt and a new phase or end."""
        job, experiment = change.job, change.experiment
        if job is None or experiment is None:
            self._publish(change)
            return
        with naming(**job.log_fields):
            logger.log(level, message)
            if change.ended or (change.pending and job.state is not JobState.PENDING):
                logger.info("experiment is %s", experiment.state)
            self._publish(change)


def _pages(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in messages of bounded size."""
    batch: list[str] = []
    total = 0
    for text in texts:
        if batch and total + len(text) > BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(text)
        total += len(text)
    yield batch


def _check_length(text: str, field: str) -> None:
    if len(text) > MAX_NAME:
        raise InvalidInputError(
            f"{len(text)} characters are more than {MAX_NAME}", field=field, remedy="shorten it"
        )


def model_of(experiment: Experiment) -> evaluation_pb2.Job:
    """Return the fields that all jobs of an experiment share: model, engine and task."""
    message = evaluation_pb2.Job(model_digest=experiment.model_digest)
    message.MergeFrom(_specified(experiment.spec_json))
    return message


def _job_message(claim: Claim, lease_seconds: float) -> evaluation_pb2.Job:
    """Return a leased job with all data that a worker needs."""
    job, experiment = claim.job, claim.experiment
    message = model_of(experiment)
    lease = message.lease
    lease.job_id, lease.token, lease.seconds = job.id, job.token, lease_seconds
    message.experiment_id = experiment.id
    message.scorer = experiment.scorer
    message.max_tokens = experiment.max_tokens
    message.descriptor.CopyFrom(descriptor_to_proto(claim.candidate.descriptor))
    message.split = evaluation_pb2.Split.Value(f"SPLIT_{job.split.name}")
    message.rows_digest = experiment.rows_of(job.split)[0]
    if claim.candidate.needs_proposal:
        message.generator_digest = experiment.generator_digest
    message.candidate = job.candidate
    message.replay_digest = experiment.selection_digest
    return message


@lru_cache(maxsize=64)
def _specified(spec_json: str) -> evaluation_pb2.Job:
    """Return the fields that all jobs of a spec share. The message is cached; do not change it."""
    spec = parsed_spec(spec_json)
    return evaluation_pb2.Job(
        model=section_to_proto(spec.model, common_pb2.ModelRef),
        task=spec.task.name,
        declaration=spec.task.declaration,
        engine=section_to_proto(spec.engine, common_pb2.EngineSpec),
    )
