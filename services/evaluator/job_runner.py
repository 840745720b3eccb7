"""One job from claim to report."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial

from modnorm.engines.settings import STAGE
from modnorm.errors import CancelledError, ModnormError, StaleLeaseError, UnavailableError
from modnorm.services.common.logging import naming
from modnorm.services.evaluator.aggregator_client import AggregatorClient, failure_kind
from modnorm.services.evaluator.job_inputs import UnfitError
from modnorm.services.evaluator.job_scoring import JobScorer, Work, split_name
from modnorm.services.evaluator.lease import (
    MIN_SILENCE_SECONDS,
    CandidateLease,
    Heartbeats,
    ReleasedError,
)
from modnorm.services.evaluator.metrics import JobOutcome
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages

LONGEST_PAUSE = 60.0
"""Seconds; after consecutive failures."""
UNFIT_SECONDS = 10.0
"""Seconds for which a worker claims no job of an experiment that it was unfit for."""
MAX_UNFIT = 1_000
"""Most experiments in a claim that the worker is unfit for."""

logger = logging.getLogger(__name__)


class BackgroundReport:
    """Scores and reports one job at a time while the engine works on the next."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "background-report")
        self._last: Future[None] | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Start work in the caller's context, after the work before it has finished."""
        self.wait()
        self._last = self._thread.submit(copy_context().run, work)

    def wait(self) -> None:
        """Wait for the last submitted work; raise its error."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """Wait for the last work and end the thread."""
        self.wait()
        self._thread.shutdown()


class JobRunner:
    """Runs jobs, one at a time at the engine; `claim` may be called from another thread."""

    def __init__(
        self,
        client: AggregatorClient,
        shutdown: Shutdown,
        scorer: JobScorer,
        *,
        heartbeat_seconds: float,
        silence_seconds: float = MIN_SILENCE_SECONDS,
    ) -> None:
        self._client = client
        self._shutdown = shutdown
        self.scorer = scorer
        self._metrics = scorer.metrics
        self._heartbeats = Heartbeats(client, heartbeat_seconds)
        STAGE.observe(self._heartbeats.send_soon)
        self._background = BackgroundReport()
        self._engine_failures, self._report_failures = 0, 0
        """Infrastructure failures in a row, at the engine and in the background."""
        self._unfit: dict[str, float] = {}
        """When the worker tries an experiment again that it was unfit for, by id."""
        self._waiting: CandidateLease | None = None
        """The lease of the job that waits for the engine."""
        self._begun: list[messages.Job] = []
        self._at_engine: messages.Job | None = None
        self._silence_seconds = silence_seconds

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job."""
        failures = self._engine_failures + self._report_failures
        # Bounded, since a worker may fail for days.
        return min(2.0 ** min(failures, 10), LONGEST_PAUSE) if failures else 0.0

    def warm(self, job: messages.Job) -> None:
        """Load the model of a job that will come, unless the engine has one."""
        if self.scorer.models.key is None and not self._shutdown.requested.is_set():
            try:
                self.scorer.warm(job, self._require_wanted)
            except Exception:
                logger.exception("the model is not loaded before its first job")

    def _require_wanted(self) -> None:
        if self._shutdown.requested.is_set():
            raise ReleasedError

    def claim(self) -> CandidateLease | None:
        """Lease the next job for `begin`; None, with any reason in the log, if there is none."""
        loaded, now = self.scorer.models.key, time.monotonic()
        unfit = [one for one, until in self._unfit.copy().items() if until > now]
        try:
            job = self._client.claim(loaded.model_digest if loaded else "", unfit[-MAX_UNFIT:])
        except ModnormError as error:
            logger.warning("not claimed: %s", error)
            return None
        if job is None:
            return None
        with naming(**_names(job)):
            lease = CandidateLease(
                self._heartbeats, job, self._shutdown, silence_seconds=self._silence_seconds
            )
        self._heartbeats.add(lease)
        self._waiting = lease
        return lease

    def begin(self, lease: CandidateLease) -> None:
        """Answer the rows of a job, and report the result or the failure."""
        self._waiting = None
        job, work = lease.job, None
        with naming(**_names(job)), self._metrics.busy.track_inprogress():
            self._begun.append(job)
            self._at_engine = job
            with self._caught(job, at_engine=True), ExitStack() as on_error:
                on_error.callback(self._heartbeats.remove, lease)
                lease.begins()
                work = self.scorer.answer(job, lease)
                on_error.pop_all()  # the report in the background ends the lease
            self._at_engine = None
            if work is None:
                self._begun.remove(job)
            else:
                self._engine_failures = 0
                self._background.submit(partial(self._finish, lease, work))

    def pass_on(self, lease: CandidateLease, reason: str) -> None:
        """Release a job that has not begun, for another worker."""
        self._waiting = None
        self._heartbeats.remove(lease)
        with naming(**_names(lease.job)):
            logger.info("passed on", extra={"reason": reason})
            self._client.fail(lease.job.lease, messages.FAILURE_KIND_RELEASED, reason)
        self._metrics.ended(JobOutcome.PASSED_ON)

    def release(self) -> None:
        """Release all jobs, for a worker that does not stop in time; from any thread."""
        jobs = self._held
        if jobs:
            logger.warning("released: the worker does not stop in time")
        self._client.release([job.lease for job in jobs], "the worker is stopping")

    @property
    def _held(self) -> Sequence[messages.Job]:
        waiting = self._waiting
        return (*self._begun, *([waiting.job] if waiting else ()))

    def abandon(self) -> None:
        """Fail the job whose engine or judge hangs, release the others; from any thread."""
        # Read first: the job in the background may end after its judge was overdue.
        held, hangs, failed = self._held, "the engine shows no sign of life", self._at_engine
        if self.scorer.judge_hangs:
            hangs, failed = "a judge does not return", held[0]  # the job in the background
        others = [job for job in held if job is not failed]
        logger.error("abandoned: %s", hangs)
        if failed is not None:
            with naming(**_names(failed)):
                self._client.fail(failed.lease, messages.FAILURE_KIND_INFRASTRUCTURE, hangs)
        self._client.release([job.lease for job in others], hangs)

    def close(self) -> None:
        """Finish the background report, free the loaded model."""
        self._background.close()
        self.scorer.close()

    def _finish(self, lease: CandidateLease, work: Work) -> None:
        """Score and report a job whose rows are answered, then end its lease."""
        job = lease.job
        with self._caught(job, at_engine=False):
            try:
                work()
            finally:
                self._heartbeats.remove(lease)
            self._report_failures = 0
            logger.info("reported")
            self._metrics.ended(JobOutcome.REPORTED)
        self._begun.remove(job)

    @contextmanager
    def _caught(self, job: messages.Job, *, at_engine: bool) -> Iterator[None]:
        """Catch errors of a job's work, report them to the aggregator and count the job."""
        try:
            yield
        except (CancelledError, StaleLeaseError) as error:
            logger.info("dropped: %s", error)
            outcome = JobOutcome.DROPPED
        except ReleasedError as error:
            logger.info("released", extra={"reason": str(error)})
            self._client.fail(job.lease, messages.FAILURE_KIND_RELEASED, str(error))
            outcome = JobOutcome.RELEASED
        except UnfitError as error:
            logger.warning("released: %s", error)
            self._unfit[job.experiment_id] = time.monotonic() + UNFIT_SECONDS
            kind = messages.FAILURE_KIND_RELEASED
            self._client.fail(job.lease, kind, str(error), unfit=True)
            outcome = JobOutcome.UNFIT
        except Exception as error:
            logger.exception("the attempt failed")
            self._fail_attempt(job, error, at_engine=at_engine)
            outcome = JobOutcome.FAILED
        else:
            return
        self._metrics.ended(outcome)

    def _fail_attempt(self, job: messages.Job, error: Exception, *, at_engine: bool) -> None:
        """Report an error; close an engine that may be broken, which the next job loads again."""
        kind = failure_kind(error, at_engine=at_engine)
        known = error if isinstance(error, ModnormError) else None
        reason = f"{type(error).__name__}: {known.reason if known else error}"
        self._client.fail(job.lease, kind, reason, (known and known.remedy) or "")
        if kind != messages.FAILURE_KIND_INFRASTRUCTURE:
            return
        if not at_engine:
            self._report_failures += 1
            return
        self._engine_failures += 1
        if not isinstance(error, UnavailableError):
            self._metrics.engine_restarts.inc()
            try:
                self.scorer.models.close()
            except Exception:
                logger.exception("the engine does not close")


def _names(job: messages.Job) -> Mapping[str, str | int]:
    """Return the fields that identify a job in the log."""
    return {
        "experiment": job.experiment_id,
        "job": job.lease.job_id,
        "candidate": job.candidate,
        "split": split_name(job),
    }
