"""One job from claim to report."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from modnorm.errors import CancelledError, ModnormError, StaleLeaseError, UnavailableError
from modnorm.search.scheduling import Turn
from modnorm.v1 import evaluation_pb2 as messages
from services.common.logging import naming
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.background_report import BackgroundReport
from services.evaluator.backoff import JobBackoff
from services.evaluator.candidate_bar import CandidateBar
from services.evaluator.job_scoring import JobScorer, Work, split_name
from services.evaluator.lease import (
    LEAST_SILENCE,
    GivenUpError,
    HandedBackError,
    Heartbeats,
    HeldLease,
)
from services.evaluator.metrics import JobOutcome
from services.evaluator.model_affinity import ModelAffinity
from services.evaluator.parked_jobs import ParkedJobs
from services.evaluator.report_messages import failure_kind
from services.evaluator.shutdown import Shutdown
from services.evaluator.task_cache import UnfitError

logger = logging.getLogger(__name__)


class JobRunner:
    """Does jobs, one at a time at the engine; used by one thread.

    Other jobs may be parked meanwhile, and one may be scored and reported in the background. The
    leases of all of them are kept alive.

    Args:
        client: The aggregator.
        shutdown: Says when to hand jobs back.
        scorer: Answers and scores the rows, and counts jobs.
        heartbeat_seconds: Longest pause between heartbeats.
        model_patience: Seconds for which jobs of other models are passed on.
        resting: Jobs that are parked at once.
        silence_seconds: How long a lease is kept while the engine shows no progress.
    """

    def __init__(  # noqa: PLR0913 - its parts, and by keyword its limits
        self,
        client: AggregatorClient,
        shutdown: Shutdown,
        scorer: JobScorer,
        *,
        heartbeat_seconds: float,
        model_patience: float = 0.0,
        resting: int = 0,
        silence_seconds: float = LEAST_SILENCE,
    ) -> None:
        self._client = client
        self._shutdown = shutdown
        self.scorer = scorer
        self._metrics = scorer.metrics
        self._affinity = ModelAffinity(client, scorer.models, model_patience)
        self._heartbeats = Heartbeats(client, heartbeat_seconds)
        self._background = BackgroundReport()
        self._backoff = JobBackoff()
        self._in_hand: list[messages.Job] = []
        self._given_up: list[messages.Job] = []
        """Jobs that were parked until they were given up, to be handed back."""
        self._silence_seconds = silence_seconds
        self._parked = ParkedJobs(resting)

    @property
    def has_parked(self) -> bool:
        """Whether jobs are parked, which only `continue_parked` finishes."""
        return len(self._parked) > 0

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job."""
        return self._backoff.seconds

    def run(self, job_id: str) -> None:
        """Do a job and all parked ones to their end, unless the worker stops; see `begin`."""
        self.begin(job_id)
        self.finish_parked()
        self._background.wait()

    def finish_parked(self) -> None:
        """Finish all parked jobs, unless the worker stops."""
        while self.has_parked and not self._shutdown.requested.is_set():
            self.continue_parked()

    def continue_parked(self) -> None:
        """Finish the best of the parked jobs, unless the worker stops."""
        if not self._shutdown.requested.is_set():
            with self._metrics.busy.track_inprogress():
                self._parked.continue_best()

    def begin(self, job_id: str) -> None:
        """Claim a job, have its rows answered, and report the result or the failure.

        Returns when the engine can take another job, with at most one report in the background.
        The job may be parked by then. A job that is done, taken or gone is left alone. All errors
        end here: a bad job never ends the worker. If the aggregator cannot be told of a failure,
        the lease expires.
        """
        self._backoff.begin()
        job = self._claim(job_id)
        if job is not None:
            self._enter(job)
        while self._parked.is_full and not self._shutdown.requested.is_set():
            self.continue_parked()

    def release(self) -> None:
        """Hand all jobs back, for a worker that does not stop in time; from any thread.

        The worker may still report them, until another worker begins.
        """
        jobs = (*self._in_hand, *self._given_up)
        if jobs:
            logger.warning("handed back: the worker does not stop in time")
        self._hand_back(jobs, "the worker is stopping")

    def abandon(self) -> None:
        """Fail the job of an engine that hangs, and hand the others back; from any thread.

        The hang counts as an attempt, so that a candidate that hangs every engine fails at last.
        """
        hangs = "the engine shows no sign of life"
        at_engine = self._parked.at_engine
        others = [job for job in (*self._in_hand, *self._given_up) if job is not at_engine]
        logger.error("given up: %s", hangs)
        if at_engine is not None:
            with naming(**_names(at_engine)):
                self._fail(at_engine, messages.FAILURE_KIND_INFRASTRUCTURE, hangs)
        self._hand_back(others, hangs)

    def close(self) -> None:
        """Hand parked jobs back, finish the background report, free the loaded model."""
        self._give_up(GivenUpError())
        self._background.close()
        self.scorer.close()

    def _claim(self, job_id: str) -> messages.Job | None:
        """Lease a job, or another in its place; None when there is nothing to do."""
        with naming(job=job_id):
            try:
                job = self._client.claim(job_id)
            except ModnormError as error:
                logger.warning("not claimed: %s", error)
                return None
            if job is None:
                logger.info("nothing to do")
                return None
        other = self._affinity.instead_of(job)
        if other is not None:
            self._pass_on(job, "another model is loaded")
        return other or job

    def _pass_on(self, job: messages.Job, reason: str) -> None:
        with naming(**_names(job)):
            logger.info("passed on", extra={"reason": reason})
            self._fail(job, messages.FAILURE_KIND_RELEASED, reason)
        self._metrics.ended(JobOutcome.PASSED_ON)

    def _enter(self, job: messages.Job) -> None:
        """Begin a job, unless it would change the state that parked jobs need."""
        if self._parked.fits(job):
            with naming(**_names(job)), self._metrics.busy.track_inprogress():
                self._parked.begin(job, partial(self._work, job))
            return
        self._pass_on(job, "parked jobs of another kind go first")
        self.finish_parked()
        # The queue may offer this job next, beside newly parked ones, and so pass it on for ever.
        again = None if self.has_parked else self._claim(job.lease.job_id)
        if again is not None:
            self._enter(again)

    def _work(self, job: messages.Job, turn: Turn) -> None:
        """Have the rows of a job answered, and leave the rest to the background."""
        self._in_hand.append(job)
        finish = None
        with self._failures(job, at_engine=True):
            finish = self._take_turn(job, turn)
        if finish is None:
            self._in_hand.remove(job)
        else:
            self._backoff.answered()
            self._background.submit(partial(self._finish, job, finish))

    def _take_turn(self, job: messages.Job, turn: Turn) -> Work:
        """Have the rows of a job answered; if it was given up meanwhile, raise that."""
        try:
            return self._answer(job, turn)
        except Exception as error:
            if turn.abandoned_with is None or turn.abandoned_with is error:
                raise
            # A broken engine may also fail to abort the job's requests.
            raise turn.abandoned_with from error

    def _answer(self, job: messages.Job, turn: Turn) -> Work:
        """Have the rows of a job answered; return the remaining work, which holds the lease."""
        bar = CandidateBar(job)
        lease = HeldLease(
            self._heartbeats,
            job.lease,
            self._shutdown,
            bar=bar,
            silence_seconds=self._silence_seconds,
        )
        with ExitStack() as held:
            held.enter_context(lease)
            report = self.scorer.answer(job, lease, bar, turn)
            still_held = held.pop_all()

        def finish() -> None:
            with still_held:
                report()

        return finish

    def _finish(self, job: messages.Job, finish: Work) -> None:
        """Score and report a job whose rows are answered."""
        with self._failures(job, at_engine=False):
            finish()
            self._backoff.reported()
            logger.info("reported")
            self._metrics.ended(JobOutcome.REPORTED)
        self._in_hand.remove(job)

    @contextmanager
    def _failures(self, job: messages.Job, *, at_engine: bool) -> Iterator[None]:
        """End a job whose work fails inside the context, and tell the aggregator.

        The engine may be at fault while rows are answered (`at_engine`).
        """
        try:
            yield
        except (CancelledError, StaleLeaseError) as error:
            logger.info("dropped: %s", error)
            outcome = JobOutcome.DROPPED
        except GivenUpError as error:
            logger.info("handed back", extra={"reason": str(error)})
            self._given_up.append(job)
            outcome = JobOutcome.HANDED_BACK
        except HandedBackError as error:
            logger.info("handed back", extra={"reason": str(error)})
            self._fail(job, messages.FAILURE_KIND_RELEASED, str(error))
            outcome = JobOutcome.HANDED_BACK
        except UnfitError as error:
            logger.warning("handed back: %s", error)
            self._backoff.unfit(job.lease.job_id)
            self._fail(job, messages.FAILURE_KIND_RELEASED, str(error))
            outcome = JobOutcome.UNFIT
        except Exception as error:
            logger.exception("the attempt failed")
            self._fail_attempt(job, error, at_engine=at_engine)
            outcome = JobOutcome.FAILED
        else:
            return
        self._metrics.ended(outcome)

    def _fail_attempt(self, job: messages.Job, error: Exception, *, at_engine: bool) -> None:
        kind = failure_kind(error, at_engine=at_engine)
        known = error if isinstance(error, ModnormError) else None
        reason = f"{type(error).__name__}: {known.reason if known else error}"
        self._fail(job, kind, reason, (known and known.remedy) or "")
        if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
            self._backoff.failed(at_engine=at_engine)
            if at_engine:
                self._start_over(error)

    def _start_over(self, error: Exception) -> None:
        """Close an engine that may be broken, with its parked jobs; the next job loads it again.

        A service that is down leaves the engine as it is. Parked jobs may need that service too.
        """
        if isinstance(error, UnavailableError):
            self._give_up(GivenUpError("a service that jobs need is down"))
            return
        self._metrics.engine_restarts.inc()
        self._give_up(GivenUpError("the engine is loaded anew"))
        try:
            self.scorer.models.close()
        except Exception:
            logger.exception("the engine does not close")

    def _give_up(self, error: GivenUpError) -> None:
        """Abandon all parked jobs and hand them back."""
        self._parked.abandon(error)
        self._hand_back(self._given_up, str(error))
        self._given_up = []

    def _hand_back(self, jobs: Sequence[messages.Job], reason: str) -> None:
        """Hand jobs back together, so that all of them wait once for an absent aggregator."""
        try:
            self._client.hand_back([job.lease for job in jobs], reason)
        except ModnormError as error:
            logger.warning("not handed back, the leases expire: %s", error)

    def _fail(
        self,
        job: messages.Job,
        kind: messages.FailureKind.ValueType,
        reason: str,
        remedy: str = "",
    ) -> None:
        try:
            self._client.fail(job.lease, kind, reason, remedy)
        except ModnormError as error:
            logger.warning("failure not reported: %s", error)


def _names(job: messages.Job) -> Mapping[str, str | int]:
    """Return the aggregator's names of a job, for the log."""
    return {
        "experiment": job.experiment_id,
        "job": job.lease.job_id,
        "candidate": job.candidate,
        "split": split_name(job),
    }
