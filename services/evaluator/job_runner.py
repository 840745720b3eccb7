"""One job from claim to report."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from modnorm.errors import CancelledError, ModnormError, StaleLeaseError, UnavailableError
from modnorm.search.racing import Race, Turn
from modnorm.v1 import evaluation_pb2 as messages
from services.common.logging import naming
from services.evaluator.background_report import Behind
from services.evaluator.backoff import Pauses
from services.evaluator.candidate_bar import Hurdle, split_name
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.heartbeats import Heartbeats
from services.evaluator.job_scoring import Evaluator, Work
from services.evaluator.lease import LEAST_SILENCE, GivenUpError, HandedBackError, HeldLease
from services.evaluator.metrics import JobOutcome
from services.evaluator.model_affinity import Preference
from services.evaluator.parked_jobs import fits_beside
from services.evaluator.report_messages import failure_kind
from services.evaluator.shutdown import Shutdown
from services.evaluator.task_cache import UnfitError

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class JobRunner:
    """Does jobs, one at a time; used by one thread.

    The engine has one job. Another may be behind it, whose last answers are judged and reported
    in a thread of its own; both leases are kept alive.

    Args:
        gateway: The aggregator.
        shutdown: Says when to hand the job in hand back.
        evaluator: Does the work, and counts it.
        heartbeat_seconds: Longest pause between heartbeats.
        model_patience: Seconds for which jobs of other models are passed on.
        resting: Candidates that rest at once, for others to begin.
        silence_seconds: How long a lease is kept while the engine shows no sign of life.
    """

    def __init__(  # noqa: PLR0913 - what it is made of, and by keyword how it goes about it
        self,
        gateway: AggregatorClient,
        shutdown: Shutdown,
        evaluator: Evaluator,
        *,
        heartbeat_seconds: float,
        model_patience: float = 0.0,
        resting: int = 0,
        silence_seconds: float = LEAST_SILENCE,
    ) -> None:
        self._gateway = gateway
        self._shutdown = shutdown
        self._evaluator = evaluator
        self._metrics = evaluator.metrics
        self._preference = Preference(gateway, evaluator.models, model_patience)
        self._heartbeats = Heartbeats(gateway, heartbeat_seconds)
        self._behind = Behind()
        self._pauses = Pauses()
        self._in_hand: list[messages.Job] = []
        self._given_up: list[messages.Job] = []
        """Jobs that rested until they were given up, to be handed back."""
        self._silence_seconds = silence_seconds
        self._race = Race(resting)
        self._working: dict[Turn, messages.Job] = {}
        """The jobs that are at the engine or rest."""

    @property
    def spent(self) -> bool:
        """Whether this process can load no engine any more that is asked for; another can."""
        return self._evaluator.spent

    @property
    def makes_room(self) -> bool:
        """Whether that is for want of memory, which fewer workers on the GPU would have."""
        return self._evaluator.makes_room

    @property
    def has_parked(self) -> bool:
        """Whether jobs rest that nobody but `continue_parked` ends."""
        return self._race.resting > 0

    def run(self, job_id: str) -> None:
        """Do a job to its end, and all that rest unless the worker is to stop; see `begin`."""
        self.begin(job_id)
        self.finish_parked()
        self._behind.settle()

    def finish_parked(self) -> None:
        """End all jobs that rest, unless the worker is to stop."""
        while self.has_parked and not self._shutdown.requested.is_set():
            self.continue_parked()

    def continue_parked(self) -> None:
        """End the best of the jobs that rest, as nothing else is to be done."""
        if not self._shutdown.requested.is_set():
            with self._metrics.busy.track_inprogress():
                self._race.go_on()

    def begin(self, job_id: str) -> None:
        """Claim a job, have its rows answered, report the result or why there is none.

        Returns when the engine is free again, and no other job is behind this one. This one may
        rest, or another that did may have gone on. A job that is done, taken or gone is left
        alone. Whatever goes wrong ends here: a bad job never ends the worker, and what the
        aggregator does not hear it finds out by the lease.
        """
        self._pauses.begin()
        job = self._claim(job_id)
        if job is not None:
            with naming(**_names(job)):
                self._enter(job)
        while self._race.is_full and self.has_parked and not self._shutdown.requested.is_set():
            self.continue_parked()

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

    def _enter(self, job: messages.Job) -> None:
        """Begin a job, unless it would take the engine away from those that rest."""
        if all(fits_beside(job, other) for other in self._working.values()):
            with self._metrics.busy.track_inprogress():
                self._race.begin(partial(self._begin, job))
            return
        logger.info("passed on: jobs that rest go first")
        self._fail(job, messages.FAILURE_KIND_RELEASED, "jobs of another kind go first")
        self._metrics.ended(JobOutcome.PASSED_ON)
        self.finish_parked()
        # Its message is the last of the queue by now: without this, others would rest again when
        # it comes, and it would be passed on for as long as there are any.
        again = None if self.has_parked else self._claim(job.lease.job_id)
        if again is not None:
            with naming(**_names(again)):
                self._enter(again)

    def _begin(self, job: messages.Job, turn: Turn) -> None:
        self._in_hand.append(job)
        self._working[turn] = job
        try:
            finish = self._guarded(job, lambda: self._take_turn(job, turn), at_engine=True)
        finally:
            del self._working[turn]
        if finish is None:
            self._in_hand.remove(job)
        else:
            self._pauses.answered()
            self._behind.hand_over(lambda: self._finish(job, finish))

    def release(self) -> None:
        """Hand the jobs in hand back for a worker that cannot be stopped; from any thread.

        The worker may still report them: a report is taken as long as nobody else has begun.
        """
        jobs = (*self._in_hand, *self._given_up)
        if jobs:
            logger.warning("handed back: the worker does not stop in time")
        self._hand_back(jobs, "the worker is stopping")

    def abandon(self) -> None:
        """Fail the job of an engine that hangs, hand the others back; from any thread.

        It counts as an attempt: a candidate that hangs every engine fails in the end.
        """
        hangs = "the engine shows no sign of life"
        active = self._race.active
        at_engine = self._working.get(active) if active else None
        others = [job for job in (*self._in_hand, *self._given_up) if job is not at_engine]
        logger.error("given up: %s", hangs)
        if at_engine is not None:
            with naming(**_names(at_engine)):
                self._fail(at_engine, messages.FAILURE_KIND_INFRASTRUCTURE, hangs)
        self._hand_back(others, hangs)

    def close(self) -> None:
        """Hand back what rests, finish what is behind, free the loaded model."""
        self._give_up(GivenUpError())
        self._behind.close()
        self._evaluator.close()

    @property
    def pause(self) -> float:
        """Seconds to wait before the next job; see `Pauses`."""
        return self._pauses.seconds

    def _take_turn(self, job: messages.Job, turn: Turn) -> Work:
        """Have a job's rows answered; what ends it when it is given up is no fault of it."""
        try:
            return self._answer(job, turn)
        except Exception as error:
            if turn.given_up is None or turn.given_up is error:
                raise
            # A broken engine may not even let go of its requests.
            raise turn.given_up from error

    def _answer(self, job: messages.Job, turn: Turn) -> Work:
        """Have a job's rows answered; return what is left to do, under the lease that is held."""
        hurdle = Hurdle(job)
        lease = HeldLease(
            self._heartbeats,
            job.lease,
            self._shutdown,
            hurdle=hurdle,
            silence_seconds=self._silence_seconds,
        )
        with ExitStack() as held:
            held.enter_context(lease)
            report = self._evaluator.answer(job, lease, hurdle, turn)
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
            self._pauses.reported()
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
            at_engine: Whether the rows are being answered: a failure may be the engine's then.
        """
        try:
            return work()
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
            self._pauses.unfit(job.lease.job_id)
            self._fail(job, messages.FAILURE_KIND_RELEASED, str(error))
            outcome = JobOutcome.UNFIT
        except Exception as error:
            logger.exception("the attempt failed")
            kind = failure_kind(error, at_engine=at_engine)
            self._fail(job, kind, f"{type(error).__name__}: {error}")
            if kind == messages.FAILURE_KIND_INFRASTRUCTURE:
                self._pauses.failed(at_engine=at_engine)
                if at_engine:
                    self._start_over(error)
            outcome = JobOutcome.FAILED
        self._metrics.ended(outcome)
        return None

    def _start_over(self, error: Exception) -> None:
        """Let go of an engine that may be broken and what rests in it; the next job loads it.

        A service that is down is no fault of the engine, which stays. What rests may need that
        service as well, and bears no blame either.
        """
        if isinstance(error, UnavailableError):
            self._give_up(GivenUpError("a service that jobs need is down"))
            return
        self._metrics.engine_restarts.inc()
        self._give_up(GivenUpError("the engine is loaded anew"))
        try:
            self._evaluator.unload()
        except Exception:
            logger.exception("the engine does not close")

    def _give_up(self, error: GivenUpError) -> None:
        """Have nothing rest any more, and hand it back."""
        self._race.give_up(error)
        self._hand_back(self._given_up, str(error))
        self._given_up = []

    def _hand_back(self, jobs: Sequence[messages.Job], reason: str) -> None:
        """Hand jobs back in one go: they wait together for an aggregator that is away."""
        try:
            self._gateway.hand_back([job.lease for job in jobs], reason)
        except ModnormError as error:
            logger.warning("not handed back, the leases end by themselves: %s", error)

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
        "split": split_name(job),
    }
