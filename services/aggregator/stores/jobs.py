"""Jobs: claimed by compare-and-set, kept by heartbeats, ended by reports and failures."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import update
from sqlmodel import Session, col, select

from modnorm.errors import NotFoundError, StaleLeaseError
from services.aggregator.codec import pack_answers
from services.aggregator.database import Database
from services.aggregator.lifecycle import close_job, end, lock_experiment, record, spec_of
from services.aggregator.phases import job_ended
from services.aggregator.reports import Report, evaluate_report
from services.aggregator.states import BASE_INDEX, ExperimentState, JobState, Split
from services.aggregator.tables import AnswerSheet, Candidate, Experiment, Job


class FailureKind(StrEnum):
    """How an attempt failed, as in `modnorm.v1.FailureKind`."""

    INFRASTRUCTURE = "infrastructure"
    CANDIDATE = "candidate"
    FATAL = "fatal"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased job and what it is about."""

    job: Job
    candidate: Candidate
    experiment: Experiment


@dataclass(frozen=True, slots=True)
class Change:
    """What the end of an attempt led to."""

    experiment_id: str
    pending: tuple[str, ...] = ()
    """Jobs that became pending by it, to be published."""
    job: Job | None = None
    """The job whose attempt ended, as it is now; None when nothing changed."""
    experiment: Experiment | None = None
    """Its experiment, as it is now."""


class JobStore:
    """The jobs of all experiments.

    Args:
        database: Where they are.
        lease_seconds: How long a lease lasts without a heartbeat.
        clock: The time, in seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        *,
        lease_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._clock = clock
        self.lease_seconds = lease_seconds

    def claim(self, job_id: str, worker: str) -> Claim | None:
        """Lease a pending job under a new fencing token; None when it is not pending (any more).

        Args:
            job_id: Which job; an unknown one is not pending either.
            worker: Who asks.
        """
        lease = (
            update(Job)
            .where(col(Job.id) == job_id, col(Job.state) == JobState.PENDING)
            .values(
                state=JobState.LEASED,
                token=col(Job.token) + 1,
                worker=worker,
                lease_deadline=self._clock() + self.lease_seconds,
                answers_done=0,
            )
        )
        with self._database.write() as session:
            if session.exec(lease).rowcount == 0:
                return None
            job = session.get_one(Job, job_id)
            candidate = session.get_one(Candidate, (job.experiment_id, job.candidate))
            return Claim(job, candidate, session.get_one(Experiment, job.experiment_id))

    def heartbeat(self, job_id: str, token: int, answers_done: int) -> bool:
        """Extend a lease.

        Returns:
            Whether the worker should stop: the job is not wanted any more.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        extend = (
            update(Job)
            .where(
                col(Job.id) == job_id,
                col(Job.token) == token,
                col(Job.state) == JobState.LEASED,
            )
            .values(lease_deadline=self._clock() + self.lease_seconds, answers_done=answers_done)
        )
        with self._database.write() as session:
            if session.exec(extend).rowcount:
                return False
            job = _find(session, job_id)
            if job.token == token and job.state is JobState.CANCELLED:
                return True
            raise _stale(job)

    def report(self, report: Report) -> Change:
        """Store the result of a job, and move the experiment on if it was the last of its phase.

        A report under the token of the last lease is taken even when that lease has run out, as
        long as nobody else has begun; repeating it changes nothing.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the work belongs to someone else, or is not wanted any more.
            InvalidInputError: the report does not fit the job; nothing is stored.
        """
        with self._database.write() as session:
            job, experiment = _lock(session, report.job_id)
            if report.token == job.token and job.state is JobState.DONE:
                return Change(experiment.id)
            if report.token != job.token or job.state not in {JobState.LEASED, JobState.PENDING}:
                raise _stale(job)
            candidate = session.get_one(Candidate, (experiment.id, job.candidate))
            outcome = evaluate_report(session, experiment, job, candidate, report)
            candidate.coefficients = outcome.coefficients
            job.metric = outcome.metric
            session.add(AnswerSheet(job_id=job.id, content=pack_answers(report.answers)))
            _fill_in(job, report)
            close_job(experiment, job, done=True)
            message = f"{_title(job)}: {outcome.metric:.4f}"
            job_ended(session, experiment, job, message, self._clock())
            return _change(session, experiment, job)

    def fail(self, job_id: str, token: int, kind: FailureKind, reason: str) -> Change:
        """Store that an attempt failed; repeating it changes nothing.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        with self._database.write() as session:
            job, experiment = _lock(session, job_id)
            if token != job.token:
                raise _stale(job)
            if job.state is not JobState.LEASED:
                return Change(experiment.id)
            self._end_attempt(session, experiment, job, kind, reason)
            return _change(session, experiment, job)

    def expired(self) -> tuple[str, ...]:
        """Return the ids of the jobs whose lease is over."""
        with self._database.read() as session:
            query = select(Job.id).where(
                Job.state == JobState.LEASED, col(Job.lease_deadline) < self._clock()
            )
            return tuple(session.exec(query).all())

    def reap(self, job_id: str) -> Change | None:
        """End the lease of a job whose time is over: its attempt failed.

        Returns:
            None when the lease was extended or the job ended in the meantime.
        """
        with self._database.write() as session:
            job, experiment = _lock(session, job_id)
            deadline = job.lease_deadline
            if job.state is not JobState.LEASED or deadline is None or deadline >= self._clock():
                return None
            reason = f"worker {job.worker!r} was silent for {self.lease_seconds:g} s"
            self._end_attempt(session, experiment, job, FailureKind.INFRASTRUCTURE, reason)
            return _change(session, experiment, job)

    def release_all(self) -> None:
        """Take back every lease without counting an attempt: no worker is left."""
        release = (
            update(Job)
            .where(col(Job.state) == JobState.LEASED)
            .values(state=JobState.PENDING, lease_deadline=None, worker="")
        )
        with self._database.write() as session:
            session.exec(release)

    def pending(self, experiment_id: str | None = None) -> tuple[str, ...]:
        """Return the ids of pending jobs, oldest experiment first, in candidate order.

        Args:
            experiment_id: Only those of one experiment.
        """
        with self._database.read() as session:
            return _pending(session, experiment_id)

    def _end_attempt(
        self, session: Session, experiment: Experiment, job: Job, kind: FailureKind, reason: str
    ) -> None:
        """Bring a leased job back, or let it fail, and with it perhaps the experiment."""
        job.lease_deadline = None
        if kind is FailureKind.RELEASED:
            job.state = JobState.PENDING
            return
        job.attempts += 1
        job.error = reason
        now, limit = self._clock(), spec_of(experiment).failures.max_attempts
        attempt = f"{_title(job)}: attempt {job.attempts} of {limit} failed: {reason}"
        if kind is FailureKind.INFRASTRUCTURE and job.attempts < limit:
            job.state = JobState.PENDING
            session.flush()
            record(session, experiment, attempt, now)
            return
        close_job(experiment, job, done=False)
        if kind is FailureKind.FATAL:
            end(session, experiment, ExperimentState.FAILED, reason, now)
        else:
            job_ended(session, experiment, job, attempt, now)


def _pending(session: Session, experiment_id: str | None) -> tuple[str, ...]:
    query = (
        select(Job.id)
        .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
        .where(Job.state == JobState.PENDING)
        .order_by(col(Experiment.create_time), col(Job.experiment_id), col(Job.candidate))
    )
    if experiment_id is not None:
        query = query.where(Job.experiment_id == experiment_id)
    return tuple(session.exec(query).all())


def _change(session: Session, experiment: Experiment, job: Job) -> Change:
    """Tell what became pending when an attempt at a job ended."""
    if job.state is JobState.PENDING:
        return Change(experiment.id, (job.id,), job, experiment)
    entered = job.split is Split.SELECTION and experiment.state is ExperimentState.VOTING
    pending = _pending(session, experiment.id) if entered else ()
    return Change(experiment.id, pending, job, experiment)


def _fill_in(job: Job, report: Report) -> None:
    """Fill in what a report records; the attempt counts, unless it did when its lease ended."""
    job.attempts += job.state is JobState.LEASED
    job.worker = report.worker or job.worker
    job.error = ""
    job.answers_done = len(report.answers)
    job.tokens = sum(answer.tokens for answer in report.answers)
    job.switch_seconds = report.switch_seconds
    job.generate_seconds = report.generate_seconds
    job.score_seconds = report.score_seconds
    job.environment = json.dumps(dict(sorted(report.environment.items())))


def _find(session: Session, job_id: str) -> Job:
    job = session.get(Job, job_id)
    if job is None:
        raise NotFoundError(f"there is no job {job_id!r}", field="lease.job_id")
    return job


def _lock(session: Session, job_id: str) -> tuple[Job, Experiment]:
    """Lock the experiment of a job, then the job."""
    experiment = lock_experiment(session, _find(session, job_id).experiment_id)
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    return job, experiment


def _stale(job: Job) -> StaleLeaseError:
    return StaleLeaseError(
        f"job {job.id} is {job.state} under lease {job.token}",
        field="lease.token",
        remedy="drop the work: it belongs to someone else, or is not wanted any more",
    )


def _title(job: Job) -> str:
    who = "base" if job.candidate == BASE_INDEX else f"candidate {job.candidate}"
    return f"{who}, {job.split}"
