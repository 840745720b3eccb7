"""The calls of workers: claims, heartbeats, reports and failures."""

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
from services.aggregator.api.to_proto import fill_bar, fill_job
from services.aggregator.experiments.lifecycle import with_remedy
from services.aggregator.jobs.batching import Batcher
from services.aggregator.jobs.job_store import (
    Beat,
    Change,
    Claim,
    ClaimRequest,
    FailureKind,
    JobStore,
)
from services.aggregator.jobs.report_checks import Report
from services.aggregator.lab_status import Workers
from services.aggregator.metrics import AggregatorMetrics
from services.aggregator.storage.states import TERMINAL
from services.common.logging import naming
from services.common.shielded_tasks import ShieldedTasks

MAX_REASON = 2000
"""Characters of the reason of a failure, and of its remedy: both are stored, sent and logged."""

_KINDS = {
    evaluation_pb2.FAILURE_KIND_INFRASTRUCTURE: FailureKind.INFRASTRUCTURE,
    evaluation_pb2.FAILURE_KIND_CANDIDATE: FailureKind.CANDIDATE,
    evaluation_pb2.FAILURE_KIND_FATAL: FailureKind.FATAL,
    evaluation_pb2.FAILURE_KIND_RELEASED: FailureKind.RELEASED,
}

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Caller:
    """The worker that made a call."""

    has_left: bool = False


@dataclass(frozen=True, slots=True)
class _QueuedClaim:
    request: ClaimRequest
    caller: Caller


class WorkerCalls:
    """Stores the calls of workers and follows them up; used in one event loop.

    A caller that may leave runs a call in `ShieldedTasks`.

    Args:
        jobs: The stored jobs.
        changed: Called with each change.
        metrics: Counts reports and failures.
        workers: Remembers the workers that asked for jobs.
        tasks: Runs the release of jobs whose workers have left.
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
        # Two: claims need not wait for the disk with reports. Both compute little and wait much.
        self._leasing = ThreadPoolExecutor(1, "leasing")
        self._reporting = ThreadPoolExecutor(1, "reporting")
        self._claims: Batcher[_QueuedClaim, Claim | None] = Batcher(self._leasing, self._claim_all)
        self._heartbeats: Batcher[Beat, bool] = Batcher(self._leasing, jobs.heartbeat_all)
        self._reports: Batcher[Report, Change] = Batcher(self._reporting, jobs.report_all)

    def close(self) -> None:
        """Stop the threads, after the last call has ended."""
        for thread in (self._leasing, self._reporting):
            thread.shutdown()

    async def claim(
        self, request: ClaimJobRequest, response: ClaimJobResponse, caller: Caller
    ) -> None:
        """Lease a job if it is pending. A caller that leaves before its turn gets none.

        Raises:
            InvalidInputError: the worker has no name, or a name or version is too long.
        """
        check_name(request.worker, "worker")
        check_length(request.version, "version")
        self._workers.heard(request.worker, request.version)
        asked = ClaimRequest(request.job_id, request.worker)
        claim = await self._claims.submit(_QueuedClaim(asked, caller))
        if claim is None:
            return
        if logger.isEnabledFor(logging.DEBUG):
            with naming(**claim.job.log_fields):
                logger.debug("leased")
        fill_job(response.job, claim, self._jobs.lease_seconds)

    def release(self, lease: Lease) -> None:
        """Release a job whose worker left before it had the lease: another one may claim it."""
        request = FailJobRequest(
            lease=lease,
            kind=evaluation_pb2.FAILURE_KIND_RELEASED,
            reason="its worker left before it had the lease",
        )
        self._tasks.start(self.fail(request))

    async def heartbeat(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        """Extend a lease, and tell whether the work is still wanted.

        Raises:
            InvalidInputError: the number of answers is out of range.
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        if not 0 <= request.answers_done <= MAX_ANSWERS:
            raise InvalidInputError(
                f"a job has at most {MAX_ANSWERS} answers, and no fewer than none",
                field="answers_done",
            )
        lease = request.lease
        beat = Beat(lease.job_id, lease.token, request.answers_done, request.resting)
        response.cancel = await self._heartbeats.submit(beat)
        bar = self._jobs.known_bar(request.experiment_id, request.candidate)
        if bar is not None:
            fill_bar(response.bar, bar)

    async def report(self, report: Report) -> None:
        """Store the result of a job, and follow it up.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the work belongs to another worker, or is not wanted any more.
            InvalidInputError: the report does not fit the job.
        """
        change = await self._reports.submit(report)
        self._metrics.reported(change)
        canaries = self._workers.canaries
        if canaries.note(report.worker, report.environment):
            self._metrics.deviating_workers.set(len(canaries.deviations()))
        self._follow_up(change, logging.DEBUG, "scored")

    async def fail(self, request: FailJobRequest) -> None:
        """Store that an attempt failed, and follow it up.

        Raises:
            InvalidInputError: the request names no kind of failure.
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        kind = _KINDS.get(request.kind)
        if kind is None:
            raise InvalidInputError("name a kind of failure", field="kind")
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
        """Lease the jobs of a batch; None for callers that have left."""
        present = [not claim.caller.has_left for claim in claims]
        wanted = [claim.request for claim, here in zip(claims, present, strict=True) if here]
        leased = iter(self._jobs.claim_all(wanted) if wanted else ())
        return [next(leased) if here else None for here in present]

    def _follow_up(self, change: Change, level: int, message: str) -> None:
        """Wake watchers and publish jobs; log the end of the attempt and its consequence."""
        job, experiment = change.job, change.experiment
        if job is None or experiment is None:
            self._changed(change)
            return
        with naming(**job.log_fields):
            logger.log(level, message)
            if experiment.state in TERMINAL or len(change.pending) > 1:
                logger.info("experiment is %s", experiment.state)
            self._changed(change)
