"""One job from claim to report."""

import logging
from collections.abc import Sequence
from pathlib import Path

from modnorm.client.convert import descriptor_from_proto
from modnorm.engines import GenerationLimits
from modnorm.errors import (
    CancelledError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    StaleLeaseError,
)
from modnorm.search.scoring import CandidateResult, score_candidate
from modnorm.tasks import Task, get_task
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.artifacts import Artifacts
from services.evaluator.gateway import JobGateway
from services.evaluator.lease import HeldLease
from services.evaluator.models import LoadedModel, Models
from services.evaluator.reports import failure_kind, report_parts
from services.evaluator.shutdown import Shutdown

LONGEST_PAUSE = 60.0

logger = logging.getLogger(__name__)


class _HandedBackError(Exception):
    """The worker stops before the job is done."""


class JobRunner:
    """Evaluates jobs, one at a time; used by one thread.

    Args:
        gateway: The aggregator.
        shutdown: Says when to hand the job in hand back.
        model_roots: Directories under which local models must lie; anywhere when None.
        heartbeat_seconds: Longest pause between heartbeats.
    """

    def __init__(
        self,
        gateway: JobGateway,
        shutdown: Shutdown,
        *,
        model_roots: Sequence[Path] | None,
        heartbeat_seconds: float,
    ) -> None:
        self._gateway = gateway
        self._shutdown = shutdown
        self._artifacts = Artifacts(gateway)
        self._models = Models(self._artifacts, model_roots)
        self._heartbeat_seconds = heartbeat_seconds
        self._failures = 0

    def run(self, job_id: str) -> None:
        """Claim a job, evaluate it, report the result or why there is none.

        A job that is done, taken or gone is left alone. Whatever goes wrong ends here: a bad job
        never ends the worker, and what the aggregator does not hear it finds out by the lease.
        """
        try:
            job = self._gateway.claim(job_id)
        except ModnormError as error:
            logger.warning("not claimed: %s", error, extra={"job": job_id})
            return
        if job is None:
            logger.info("nothing to do", extra={"job": job_id})
            return
        self._work(job)

    def close(self) -> None:
        """Free the loaded model."""
        self._models.close()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job.

        Longer with each infrastructure failure in a row, lest one broken worker spend the
        attempts of every job.
        """
        return min(2.0**self._failures, LONGEST_PAUSE) if self._failures else 0.0

    def _work(self, job: messages.Job) -> None:
        names = {"job": job.lease.job_id, "experiment": job.experiment_id}
        try:
            with HeldLease(self._gateway, job.lease, seconds=self._heartbeat_seconds) as lease:
                self._evaluate(job, lease)
            self._failures = 0
        except (CancelledError, StaleLeaseError) as error:
            logger.info("dropped: %s", error, extra=names)
        except _HandedBackError:
            logger.info("handed back", extra=names)
            self._fail(job, messages.FAILURE_KIND_RELEASED, "the worker is stopping")
        except Exception as error:
            logger.exception("the attempt failed", extra=names)
            kind = failure_kind(error)
            self._fail(job, kind, f"{type(error).__name__}: {error}")
            if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
                self._start_over()

    def _evaluate(self, job: messages.Job, lease: HeldLease) -> None:
        task = _task(job)
        model = self._models.load(job)
        result = self._score(job, task, model, lease)
        environment = model.engine.environment
        self._gateway.report(
            lambda: report_parts(job.lease, self._gateway.worker, result, environment)
        )

    def _score(
        self, job: messages.Job, task: Task, model: LoadedModel, lease: HeldLease
    ) -> CandidateResult:
        rows = self._artifacts.rows(job.rows_digest)
        prompts = model.prompts(job.task, job.rows_digest)
        lease.total = len(rows)

        def on_progress(done: int) -> None:
            lease.progress(done)
            if self._shutdown.overdue:
                raise _HandedBackError

        on_progress(0)
        return score_candidate(
            model.engine,
            task,
            rows,
            prompts,
            descriptor_from_proto(job.descriptor),
            self._artifacts.scale_map(job.descriptor.scale_map_digest),
            GenerationLimits(job.max_tokens),
            on_progress=on_progress,
        )

    def _start_over(self) -> None:
        """Let go of an engine that may be broken; the next job loads it again."""
        self._failures += 1
        try:
            self._models.close()
        except Exception:
            logger.exception("the engine does not close")

    def _fail(self, job: messages.Job, kind: messages.FailureKind.ValueType, reason: str) -> None:
        try:
            self._gateway.fail(job.lease, kind, reason)
        except ModnormError as error:
            logger.warning("failure not reported: %s", error, extra={"job": job.lease.job_id})


def _task(job: messages.Job) -> Task:
    try:
        return get_task(job.task, scorer=job.scorer)
    except InvalidInputError as error:
        if error.field != "task.scorer":
            raise
        raise IncompatibleError(
            f"this worker does not score {job.task} with {job.scorer}",
            remedy="run evaluators of the version that the experiment was made with",
        ) from error
