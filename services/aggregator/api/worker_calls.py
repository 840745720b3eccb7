"""Calls of workers: claims, heartbeats, reports and failures."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from modnorm.errors import InvalidInputError
from modnorm.v1 import evaluation_pb2
from modnorm.v1.evaluation_pb2 import (
    ClaimJobRequest,
    ClaimJobResponse,
    FailJobRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    Lease,
)
from services.aggregator.api.report_reader import MAX_ANSWERS, check_length, check_name
from services.aggregator.api.to_proto import fill_job, fill_threshold
from services.aggregator.api.work_stream import Caller
from services.aggregator.experiments.lifecycle import with_remedy
from services.aggregator.jobs.batching import Batcher
from services.aggregator.jobs.job_store import (
    Change,
    Claim,
    ClaimRequest,
    FailureKind,
    Heartbeat,
    JobStore,
)
from services.aggregator.jobs.report_checks import Report
from services.aggregator.lab_status import Workers
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.storage.states import TERMINAL
from services.common.logging import naming
from services.common.shielded_tasks import ShieldedTasks

MAX_REASON = 2000
"""Characters of a failure's reason and of its remedy, which are stored, sent and logged."""

_KINDS = {
    evaluation_pb2.FAILURE_KIND_INFRASTRUCTURE: FailureKind.INFRASTRUCTURE,
    evaluation_pb2.FAILURE_KIND_CANDIDATE: FailureKind.CANDIDATE,
    evaluation_pb2.FAILURE_KIND_FATAL: FailureKind.FATAL,
    evaluation_pb2.FAILURE_KIND_RELEASED: FailureKind.RELEASED,
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _QueuedClaim:
    request: ClaimRequest
    caller: Caller


class WorkerCalls:
    """Stores the calls of workers and follows them up; used in one event loop.

    Run a call in `ShieldedTasks` if its worker may disconnect.
    """

    def __init__(
        self,
        jobs: JobStore,
        changed: Callable[[Change], None],
        metrics: AggregatorMetrics,
        workers: Workers,
        tasks: ShieldedTasks,
    ) -> None:
        self._jobs = jobs
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

    def close(self) -> None:
        """Stop the threads after the last call has ended."""
        for thread in (self._leasing, self._reporting):
            thread.shutdown()

    async def claim(
        self, request: ClaimJobRequest, response: ClaimJobResponse, caller: Caller
    ) -> None:
        """Lease a job if it is pending and its worker is still connected.

        Raises:
            InvalidInputError: the worker has no name, or name or version is too long.
        """
        check_name(request.worker, "worker")
        check_length(request.version, "version")
        self._workers.record_claim(request.worker, request.version)
        job_request = ClaimRequest(request.job_id, request.worker)
        claim = await self._claims.submit(_QueuedClaim(job_request, caller))
        if claim is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            with naming(**claim.job.log_fields):
                logger.debug("leased")
        fill_job(response.job, claim, self._jobs.lease_seconds)

    def release(self, lease: Lease) -> None:
        """Release a job whose worker disconnected before it received the lease."""
        request = FailJobRequest(
            lease=lease,
            kind=evaluation_pb2.FAILURE_KIND_RELEASED,
            reason="the worker disconnected before it received the lease",
        )
        self._tasks.start(self.fail(request))

    async def heartbeat(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
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
        threshold = self._jobs.cached_threshold(request.experiment_id, request.candidate)
        if threshold is not None:
            fill_threshold(response.threshold, threshold)

    async def report(self, report: Report) -> None:
        """Store the result of a job and follow it up.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: another worker has the job, or it is cancelled.
            InvalidInputError: the report does not fit the job.
        """
        change = await self._reports.submit(report)
        self._metrics.reported(change)
        canaries = self._workers.canaries
        if canaries.note(report.worker, report.environment):
            self._metrics.deviating_workers.set(len(canaries.deviations()))
        self._follow_up(change, logging.DEBUG, "scored")

    async def fail(self, request: FailJobRequest) -> None:
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
        change = await asyncio.to_thread(
            self._jobs.fail, lease.job_id, lease.token, kind, reason, remedy
        )
        self._metrics.failed(change, kind)
        level = logging.INFO if kind is FailureKind.RELEASED else logging.WARNING
        self._follow_up(change, level, f"attempt {kind}: {with_remedy(reason, remedy)}")

    def _claim_all(self, claims: Sequence[_QueuedClaim]) -> Sequence[Claim | Exception | None]:
        """Lease the jobs of a batch; None for callers that have disconnected."""
        connected = [not claim.caller.has_left for claim in claims]
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
