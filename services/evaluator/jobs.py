"""One job from claim to report."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry

from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import Engine, EngineSettings, GenerationLimits, load_engine
from modnorm.errors import (
    CancelledError,
    DoesNotFitError,
    ModnormError,
    PreconditionError,
    StaleLeaseError,
)
from modnorm.perturbation.descriptor import Descriptor
from modnorm.sandbox import Runner
from modnorm.search.scoring import Answered, CandidateResult, answer_candidate
from modnorm.search.stopping import EarlyStop
from modnorm.tasks import Task
from modnorm.v1 import evaluation_pb2 as messages
from services.common.logging import naming
from services.evaluator.artifacts import Artifacts
from services.evaluator.behind import Behind
from services.evaluator.gateway import JobGateway
from services.evaluator.lease import HeldLease
from services.evaluator.metrics import EvaluatorMetrics, JobOutcome
from services.evaluator.models import LoadedModel, LoadEngine, Models
from services.evaluator.preference import Preference
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
from services.evaluator.states import States
from services.evaluator.tasks import Tasks, UnfitError

LONGEST_PAUSE = 60.0
LOOK_SECONDS = 0.2
"""Seconds between two looks at whether a job whose answers are being judged is still wanted."""

Work = Callable[[], None]
ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class _HandedBackError(Exception):
    """The worker stops before the job is done."""


class JobRunner:
    """Evaluates jobs, one at a time; used by one thread.

    The engine has one job. Another may be behind it, whose last answers are judged and reported
    in a thread of its own; both leases are kept alive.

    Args:
        gateway: The aggregator.
        shutdown: Says when to hand the job in hand back.
        model_roots: Directories under which local models must lie; anywhere when None.
        heartbeat_seconds: Longest pause between heartbeats.
        gpu_share: Part of a GPU's memory that the engine may take.
        model_patience: Seconds for which jobs of other models are passed on.
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
        model_patience: float = 0.0,
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
        self._states = States(self._artifacts)
        self._models = Models(
            self._artifacts, model_roots, self._counted(load), share=gpu_share, lock=load_lock
        )
        self._preference = Preference(gateway, self._models, model_patience)
        self._tasks = Tasks(sandbox)
        self._judges = ThreadPoolExecutor(len(os.sched_getaffinity(0)), "judge")
        self._heartbeat_seconds = heartbeat_seconds
        self._pulse = pulse or Pulse(float("inf"))
        self._behind = Behind()
        self._failures = 0
        self._late_failures = 0
        self._may_make_room = may_make_room
        self.spent = False
        """Whether this process can load no engine any more that is asked for; another can."""
        self.makes_room = False
        """Whether that is for want of memory, which fewer workers on the GPU would have."""
        self._in_hand: list[messages.Job] = []

    def run(self, job_id: str) -> None:
        """Do a job to its end; see `begin`."""
        self.begin(job_id)
        self._behind.settle()

    def begin(self, job_id: str) -> None:
        """Claim a job, have its rows answered, report the result or why there is none.

        Returns when the engine is free again, and no other job is behind this one. A job that is
        done, taken or gone is left alone. Whatever goes wrong ends here: a bad job never ends the
        worker, and what the aggregator does not hear it finds out by the lease.
        """
        job = self._claim(job_id)
        if job is not None:
            with naming(**_names(job)):
                self._begin(job)

    def _claim(self, job_id: str) -> messages.Job | None:
        """Lease a job, or another in its place; None when there is nothing to do."""
        with naming(job=job_id):
            try:
                job = self._gateway.claim(job_id)
            except ModnormError as error:
                logger.warning("not claimed: %s", error)
                return None
            if job is None:
                logger.info("nothing to do")
                return None
        other = self._preference.instead_of(job)
        if other is not None:
            with naming(**_names(job)):
                logger.info("passed on: a job of the loaded model goes first")
                self._fail(job, messages.FAILURE_KIND_RELEASED, "another model is loaded")
            self._metrics.ended(JobOutcome.PASSED_ON)
        return other or job

    def _begin(self, job: messages.Job) -> None:
        self._in_hand.append(job)
        with self._metrics.busy.track_inprogress():
            finish = self._guarded(job, lambda: self._answer(job), at_engine=True)
        if finish is None:
            self._in_hand.remove(job)
        else:
            self._failures = 0
            self._behind.hand_over(lambda: self._finish(job, finish))

    def release(self) -> None:
        """Hand the jobs in hand back for a worker that cannot be stopped; from any thread.

        The worker may still report them: a report is taken as long as nobody else has begun.
        """
        for job in tuple(self._in_hand):
            with naming(**_names(job)):
                logger.warning("handed back: the worker does not stop in time")
                self._fail(job, messages.FAILURE_KIND_RELEASED, "the worker is stopping")

    def abandon(self) -> None:
        """Fail the job of an engine that hangs, hand back the one behind it; from any thread.

        It counts as an attempt: a candidate that hangs every engine fails in the end.
        """
        hangs = "the engine shows no sign of life"
        for place, job in enumerate(reversed(self._in_hand)):
            behind = messages.FAILURE_KIND_RELEASED
            with naming(**_names(job)):
                logger.error("given up: %s", hangs)
                self._fail(job, behind if place else messages.FAILURE_KIND_INFRASTRUCTURE, hangs)

    def close(self) -> None:
        """Finish what is behind, free the loaded model."""
        self._behind.close()
        self._judges.shutdown(cancel_futures=True)
        self._models.close()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job.

        Longer with each infrastructure failure in a row, lest one broken worker spend the
        attempts of every job.
        """
        failures = self._failures + self._late_failures
        return min(2.0**failures, LONGEST_PAUSE) if failures else 0.0

    def _answer(self, job: messages.Job) -> Work:
        """Have a job's rows answered; return what is left to do, under the lease that is held."""
        hurdle, pause = Hurdle(job), self._heartbeat_seconds
        with ExitStack() as held:
            lease = held.enter_context(
                HeldLease(self._gateway, job.lease, seconds=pause, hurdle=hurdle)
            )
            report = self._evaluate(job, lease, hurdle)
            still_held = held.pop_all()

        def finish() -> None:
            with still_held:
                report()

        return finish

    def _finish(self, job: messages.Job, finish: Work) -> None:
        """Do what is left of a job that was answered."""

        def finished() -> JobOutcome:
            finish()
            return JobOutcome.REPORTED

        outcome = self._guarded(job, finished, at_engine=False)
        if outcome is not None:
            self._late_failures = 0
            logger.info("reported")
            self._metrics.ended(outcome)
        self._in_hand.remove(job)

    def _guarded(
        self, job: messages.Job, work: Callable[[], ResultT], *, at_engine: bool
    ) -> ResultT | None:
        """Do a part of a job; None where it ends here, of which the aggregator then knows.

        Args:
            job: The job.
            work: The part.
            at_engine: Whether a failure of the infrastructure may be the engine's.
        """
        try:
            return work()
        except (CancelledError, StaleLeaseError) as error:
            logger.info("dropped: %s", error)
            outcome = JobOutcome.DROPPED
        except _HandedBackError:
            logger.info("handed back")
            self._fail(job, messages.FAILURE_KIND_RELEASED, "the worker is stopping")
            outcome = JobOutcome.HANDED_BACK
        except UnfitError as error:
            logger.warning("handed back: %s", error)
            self._failures += 1
            self._fail(job, messages.FAILURE_KIND_RELEASED, str(error))
            outcome = JobOutcome.UNFIT
        except Exception as error:
            logger.exception("the attempt failed")
            kind = failure_kind(error)
            self._fail(job, kind, f"{type(error).__name__}: {error}")
            if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
                self._note_failure(at_engine=at_engine)
            outcome = JobOutcome.FAILED
        self._metrics.ended(outcome)
        return None

    def _note_failure(self, *, at_engine: bool) -> None:
        """Wait longer before the next job, with an engine that is loaded anew."""
        if at_engine:
            self._start_over()
        else:
            self._late_failures += 1

    def _counted(self, load: LoadEngine) -> LoadEngine:
        def counted(engine: str, checkpoint: Checkpoint, settings: EngineSettings) -> Engine:
            self._metrics.model_loads.inc()
            return load(engine, checkpoint, settings)

        return counted

    def _evaluate(self, job: messages.Job, lease: HeldLease, hurdle: Hurdle) -> Work:
        """Have a job's rows answered; return what is left to do."""
        fences = self._tasks.check(job.task)
        task = self._tasks.of(job)
        rows = open_rows(job, len(self._artifacts.rows(job.rows_digest)))
        if not rows:
            return lambda: self._report(job, nothing_to_answer(job), {})
        with self._pulse.loading():
            model = self._load(job, lease)
        with self._pulse.working():
            canary = model.replay(task, job, lambda: self._go_on(lease, 0))
            reached = self._states.reach(job, model.engine)
            stop = early_stop(job, task, hurdle)
            answered = self._score(job, task, model, lease, rows, stop, reached.descriptor)
        environment = {**model.engine.environment, **fences, **canary}

        def report() -> None:
            with answered:
                while not answered.is_judged(LOOK_SECONDS):
                    self._keep(lease, len(rows))
                result = answered.result()
            whole = reached.charge(renumbered(result, rows))
            self._report(job, whole, environment, reached.normaliser)
            self._metrics.scored(result)

        return report

    def _report(
        self,
        job: messages.Job,
        result: CandidateResult,
        environment: Mapping[str, str],
        normaliser: float = 0.0,
    ) -> None:
        worker = self._gateway.worker
        self._gateway.report(
            lambda: report_parts(job.lease, worker, result, environment, normaliser)
        )

    def _load(self, job: messages.Job, lease: HeldLease) -> LoadedModel:
        """Load the model of a job, without counting an attempt where a new process is needed."""
        try:
            return self._models.load(job, lambda: self._go_on(lease, 0))
        except StaleLeaseError:
            raise
        except PreconditionError as error:
            self.spent = True
            raise UnfitError(str(error)) from error
        except DoesNotFitError as error:
            if not self._may_make_room:
                raise
            self.spent = self.makes_room = True
            raise UnfitError(str(error)) from error

    def _go_on(self, lease: HeldLease, done: int) -> None:
        """Note progress, and stop when the work is not wanted or the worker is to end."""
        self._pulse.beat()
        self._keep(lease, done)

    def _keep(self, lease: HeldLease, done: int) -> None:
        """The same, away from the engine."""
        lease.progress(done)
        if self._shutdown.overdue:
            raise _HandedBackError

    def _score(  # noqa: PLR0913, PLR0917 - a job and all that it takes
        self,
        job: messages.Job,
        task: Task,
        model: LoadedModel,
        lease: HeldLease,
        numbers: Sequence[int],
        stop: EarlyStop | None,
        descriptor: Descriptor,
    ) -> Answered:
        """Answer the rows of these numbers; in the result they are counted from 0."""
        rows = self._artifacts.rows(job.rows_digest)
        prompts = model.prompts(task, job.rows_digest)
        lease.total = len(numbers)

        self._go_on(lease, 0)
        return answer_candidate(
            model.engine,
            task,
            [rows[number] for number in numbers],
            [prompts[number] for number in numbers],
            descriptor,
            self._artifacts.scale_map(job.descriptor.scale_map_digest),
            GenerationLimits(job.max_tokens),
            judges=self._judges,
            on_progress=lambda done: self._go_on(lease, done),
            stop=stop,
        )

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
