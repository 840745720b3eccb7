"""One job from claim to report."""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from prometheus_client import CollectorRegistry

from modnorm.checkpoint.reference import Checkpoint
from modnorm.client.convert import descriptor_from_proto
from modnorm.engines import Engine, EngineSettings, GenerationLimits, load_engine
from modnorm.errors import (
    CancelledError,
    DoesNotFitError,
    EngineError,
    IncompatibleError,
    InvalidInputError,
    ModnormError,
    PreconditionError,
    StaleLeaseError,
    UnavailableError,
)
from modnorm.sandbox import Runner
from modnorm.search.scoring import CandidateResult, score_candidate
from modnorm.search.stopping import EarlyStop
from modnorm.tasks import Task, get_stored_task, paper_tasks
from modnorm.v1 import evaluation_pb2 as messages
from services.common.logging import naming
from services.evaluator.artifacts import KEPT, Artifacts
from services.evaluator.gateway import JobGateway
from services.evaluator.lease import HeldLease
from services.evaluator.metrics import EvaluatorMetrics, JobOutcome
from services.evaluator.models import LoadedModel, LoadEngine, Models
from services.evaluator.programs import Programs
from services.evaluator.pulse import Pulse
from services.evaluator.reports import failure_kind, report_parts
from services.evaluator.shortcuts import (
    Hurdle,
    early_stop,
    nothing_to_answer,
    open_rows,
    renumbered,
)
from services.evaluator.shutdown import Shutdown

LONGEST_PAUSE = 60.0

logger = logging.getLogger(__name__)


class _HandedBackError(Exception):
    """The worker stops before the job is done."""


class _UnfitError(Exception):
    """This worker lacks what the job needs; another may have it."""


class JobRunner:
    """Evaluates jobs, one at a time; used by one thread.

    Args:
        gateway: The aggregator.
        shutdown: Says when to hand the job in hand back.
        model_roots: Directories under which local models must lie; anywhere when None.
        heartbeat_seconds: Longest pause between heartbeats.
        gpu_share: Part of a GPU's memory that the engine may take.
        pulse: Where the engine's signs of life are noted.
        load_lock: File that workers of one GPU lock in turn while they load.
        may_make_room: Whether to end when a model does not fit that part.
        sandbox: Runs programs that models wrote; None where no task does.
        load: Makes engines.
        metrics: What is counted.
    """

    def __init__(  # noqa: PLR0913 - wiring: these are all that a job may need
        self,
        gateway: JobGateway,
        shutdown: Shutdown,
        *,
        model_roots: Sequence[Path] | None,
        heartbeat_seconds: float,
        gpu_share: float = EngineSettings().gpu_memory_utilization,
        pulse: Pulse | None = None,
        load_lock: Path | None = None,
        may_make_room: bool = False,
        sandbox: Runner | None = None,
        load: LoadEngine = load_engine,
        metrics: EvaluatorMetrics | None = None,
    ) -> None:
        self._metrics = metrics or EvaluatorMetrics(CollectorRegistry())
        self._gateway = gateway
        self._shutdown = shutdown
        self._artifacts = Artifacts(gateway)
        self._models = Models(
            self._artifacts, model_roots, self._counted(load), share=gpu_share, lock=load_lock
        )
        self._programs = Programs(sandbox)
        self._judges = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "judge")
        self._task = lru_cache(maxsize=KEPT)(self._make_task)
        self._heartbeat_seconds = heartbeat_seconds
        self._pulse = pulse or Pulse(float("inf"))
        self._failures = 0
        self._may_make_room = may_make_room
        self.spent = False
        """Whether this process can load no engine any more that is asked for; another can."""
        self.makes_room = False
        """Whether that is for want of memory, which fewer workers on the GPU would have."""
        self._in_hand: messages.Job | None = None

    def run(self, job_id: str) -> None:
        """Claim a job, evaluate it, report the result or why there is none.

        A job that is done, taken or gone is left alone. Whatever goes wrong ends here: a bad job
        never ends the worker, and what the aggregator does not hear it finds out by the lease.
        """
        with naming(job=job_id):
            try:
                job = self._gateway.claim(job_id)
            except ModnormError as error:
                logger.warning("not claimed: %s", error)
                return
            if job is None:
                logger.info("nothing to do")
                return
            with naming(**_names(job)), self._metrics.busy.track_inprogress():
                self._in_hand = job
                self._metrics.ended(self._work(job))
                self._in_hand = None

    def release(self) -> None:
        """Hand the job in hand back for a worker that cannot be stopped; from any thread.

        The worker may still report it: a report is taken as long as nobody else has begun.
        """
        self._tell(messages.FAILURE_KIND_RELEASED, "the worker does not stop in time")

    def abandon(self) -> None:
        """Fail the job in hand for an engine that hangs; from any thread.

        It counts as an attempt: a candidate that hangs every engine fails in the end.
        """
        self._tell(messages.FAILURE_KIND_INFRASTRUCTURE, "the engine shows no sign of life")

    def _tell(self, kind: messages.FailureKind.ValueType, reason: str) -> None:
        job = self._in_hand
        if job is not None:
            with naming(**_names(job)):
                logger.warning("given up: %s", reason)
                self._fail(job, kind, reason)

    def close(self) -> None:
        """Free the loaded model."""
        self._judges.shutdown(cancel_futures=True)
        self._models.close()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job.

        Longer with each infrastructure failure in a row, lest one broken worker spend the
        attempts of every job.
        """
        return min(2.0**self._failures, LONGEST_PAUSE) if self._failures else 0.0

    def _work(self, job: messages.Job) -> JobOutcome:
        """Evaluate a job, report the result or why there is none, and tell how it ended."""
        try:
            hurdle, pause = Hurdle(job), self._heartbeat_seconds
            with HeldLease(self._gateway, job.lease, seconds=pause, hurdle=hurdle) as lease:
                self._evaluate(job, lease, hurdle)
            self._failures = 0
        except (CancelledError, StaleLeaseError) as error:
            logger.info("dropped: %s", error)
            return JobOutcome.DROPPED
        except _HandedBackError:
            logger.info("handed back")
            self._fail(job, messages.FAILURE_KIND_RELEASED, "the worker is stopping")
            return JobOutcome.HANDED_BACK
        except _UnfitError as error:
            logger.warning("handed back: %s", error)
            self._failures += 1
            self._fail(job, messages.FAILURE_KIND_RELEASED, str(error))
            return JobOutcome.UNFIT
        except Exception as error:
            logger.exception("the attempt failed")
            kind = failure_kind(error)
            self._fail(job, kind, f"{type(error).__name__}: {error}")
            if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
                self._start_over()
            return JobOutcome.FAILED
        logger.info("reported")
        return JobOutcome.REPORTED

    def _counted(self, load: LoadEngine) -> LoadEngine:
        def counted(engine: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
            self._metrics.model_loads.inc()
            return load(engine, checkpoint, settings)

        return counted

    def _evaluate(self, job: messages.Job, lease: HeldLease, hurdle: Hurdle) -> None:
        fences = self._check_programs(job.task)
        declaration = job.declaration if job.HasField("declaration") else None
        task = self._task(job.task, job.scorer, declaration)
        rows = open_rows(job, len(self._artifacts.rows(job.rows_digest)))
        if not rows:
            self._report(job, nothing_to_answer(job), {})
            return
        with self._pulse.loading():
            model = self._load(job, lease)
        with self._pulse.working():
            result = self._score(job, task, model, lease, rows, early_stop(job, task, hurdle))
        self._report(job, renumbered(result, rows), {**model.engine.environment, **fences})
        self._metrics.scored(result)

    def _report(
        self, job: messages.Job, result: CandidateResult, environment: Mapping[str, str]
    ) -> None:
        self._gateway.report(
            lambda: report_parts(job.lease, self._gateway.worker, result, environment)
        )

    def _check_programs(self, task: str) -> Mapping[str, str]:
        """Look at the sandbox before any work, and without counting an attempt against the job."""
        try:
            return self._programs.check(task)
        except (EngineError, PreconditionError, UnavailableError) as error:
            raise _UnfitError(str(error)) from error

    def _load(self, job: messages.Job, lease: HeldLease) -> LoadedModel:
        """Load the model of a job, without counting an attempt where a new process is needed."""
        try:
            return self._models.load(job, lambda: self._go_on(lease, 0))
        except StaleLeaseError:
            raise
        except PreconditionError as error:
            self.spent = True
            raise _UnfitError(str(error)) from error
        except DoesNotFitError as error:
            if not self._may_make_room:
                raise
            self.spent = self.makes_room = True
            raise _UnfitError(str(error)) from error

    def _go_on(self, lease: HeldLease, done: int) -> None:
        """Note progress, and stop when the work is not wanted or the worker is to end."""
        self._pulse.beat()
        lease.progress(done)
        if self._shutdown.overdue:
            raise _HandedBackError

    def _make_task(self, name: str, scorer: str, declaration: str | None) -> Task:
        """Make a task with the scorer that the experiment has; called once for each.

        Raises:
            IncompatibleError: this version scores a task of the paper otherwise.
            _UnfitError: the package of another task is not installed here, or in another version.
        """
        try:
            return get_stored_task(
                name, scorer=scorer, sandbox=self._programs.sandbox, declaration=declaration
            )
        except InvalidInputError as error:
            if name in paper_tasks():
                raise IncompatibleError(
                    f"this worker does not score {name} with {scorer}",
                    remedy="run evaluators of the version that the experiment was made with",
                ) from error
            raise _UnfitError(
                f"this worker does not have {name} with the scorer {scorer}: {error.message}; "
                "install the package and the version that the experiment was made with"
            ) from error

    def _score(  # noqa: PLR0913, PLR0917 - a job and all that it takes
        self,
        job: messages.Job,
        task: Task,
        model: LoadedModel,
        lease: HeldLease,
        numbers: Sequence[int],
        stop: EarlyStop | None,
    ) -> CandidateResult:
        """Answer the rows of these numbers; in the result they are counted from 0."""
        rows = self._artifacts.rows(job.rows_digest)
        prompts = model.prompts(task, job.rows_digest)
        lease.total = len(numbers)

        self._go_on(lease, 0)
        self._reach_state(job, model.engine)
        return score_candidate(
            model.engine,
            task,
            [rows[number] for number in numbers],
            [prompts[number] for number in numbers],
            descriptor_from_proto(job.descriptor),
            self._artifacts.scale_map(job.descriptor.scale_map_digest),
            GenerationLimits(job.max_tokens),
            judges=self._judges,
            on_progress=lambda done: self._go_on(lease, done),
            stop=stop,
        )

    def _reach_state(self, job: messages.Job, engine: Engine) -> None:
        """Bring an engine to the state that the candidate of a job is drawn around."""
        state = job.descriptor.lineage_digest
        engine.rebase(self._artifacts.lineage(job.experiment_id, state) if state else None)

    def _start_over(self) -> None:
        """Let go of an engine that may be broken; the next job loads it again."""
        self._failures += 1
        self._metrics.engine_restarts.inc()
        try:
            self._models.close()
        except Exception:
            logger.exception("the engine does not close")

    def _fail(self, job: messages.Job, kind: messages.FailureKind.ValueType, reason: str) -> None:
        try:
            self._gateway.fail(job.lease, kind, reason)
        except ModnormError as error:
            logger.warning("failure not reported: %s", error)


def _names(job: messages.Job) -> Mapping[str, str | int]:
    """Return what a job is called in the log, as the aggregator calls it."""
    return {
        "experiment": job.experiment_id,
        "job": job.lease.job_id,
        "candidate": job.candidate,
        "split": messages.Split.Name(job.split).removeprefix("SPLIT_").lower(),
    }
