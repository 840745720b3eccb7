"""Jobs: claimed by compare-and-set, kept by heartbeats, ended by reports and failures.

Calls of workers that arrive together are stored in one transaction. Each is still fenced and
answered for itself: where they cannot be stored together, each is stored alone.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import func, or_, update
from sqlmodel import Session, col, select

from modnorm.search.stopping import Bar
from services.aggregator.database import Database
from services.aggregator.known import Known
from services.aggregator.lifecycle import close_job, end, lock_experiment, record, spec_of
from services.aggregator.phases import job_ended
from services.aggregator.reports import Checks, Report
from services.aggregator.shortcuts import Shortcuts
from services.aggregator.states import TERMINAL, ExperimentState, JobState
from services.aggregator.stores.attempts import (
    Beat,
    Change,
    Claim,
    ClaimRequest,
    FailureKind,
    find_job,
    pending_jobs,
    pending_of_model,
    stale,
    title,
)
from services.aggregator.stores.leasing import end_of, extend_leases, lease_jobs, look_up
from services.aggregator.stores.reporting import Reporting, change_of
from services.aggregator.stores.together import answer_to, together
from services.aggregator.stores.writes import PackedReport
from services.aggregator.tables import Experiment, Job

__all__ = ["Beat", "Change", "Claim", "ClaimRequest", "FailureKind", "JobStore"]


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
        self._shortcuts = Shortcuts()
        self._checks = Checks(Known(), self._shortcuts)
        self.lease_seconds = lease_seconds

    def claim(self, job_id: str, worker: str) -> Claim | None:
        """Lease a pending job under a new fencing token; None when it is not pending (any more).

        Args:
            job_id: Which job; an unknown one is not pending either.
            worker: Who asks.
        """
        return answer_to(self.claim_all([ClaimRequest(job_id, worker)]))

    def claim_all(self, requests: Sequence[ClaimRequest]) -> Sequence[Claim | Exception | None]:
        """Answer claims that arrived together, the first one first."""
        return together(self._database, self._claim, requests)

    def heartbeat(self, job_id: str, token: int, answers_done: int) -> bool:
        """Extend a lease.

        Returns:
            Whether the worker should stop: the job is not wanted any more.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        return answer_to(self.heartbeat_all([Beat(job_id, token, answers_done)]))

    def heartbeat_all(self, beats: Sequence[Beat]) -> Sequence[bool | Exception]:
        """Answer heartbeats that arrived together."""
        answers: list[bool | Exception] = []
        extended = together(self._database, self._extend, beats)
        for beat, answer in zip(beats, extended, strict=True):
            if answer is None:
                answers.extend(together(self._database, self._extend_one, [beat]))
            else:
                answers.append(answer)
        return answers

    def report(self, report: Report) -> Change:
        """Store the result of a job, and move the experiment on if it was the last of its phase.

        A report under the token of the last lease is taken even when that lease has run out, as
        long as nobody else has begun; repeating it changes nothing.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the work belongs to someone else, or is not wanted any more.
            InvalidInputError: the report does not fit the job; nothing is stored.
        """
        return answer_to(self.report_all([report]))

    def report_all(self, reports: Sequence[Report]) -> Sequence[Change | Exception]:
        """Answer reports that arrived together, the first one first."""
        answers = together(self._database, self._store, [PackedReport.of(one) for one in reports])
        for answer in answers:
            if isinstance(answer, Change) and answer.job and answer.experiment:
                self._shortcuts.scored(answer.job)
                if answer.experiment.state in TERMINAL:
                    self._shortcuts.forget(answer.experiment.id)
        return answers

    def known_bar(self, experiment_id: str, candidate: int) -> Bar | None:
        """Return the bar of a candidate as far as it is in memory; None where there is none."""
        return self._shortcuts.known_bar(experiment_id, candidate)

    def fail(self, job_id: str, token: int, kind: FailureKind, reason: str) -> Change:
        """Store that an attempt failed; repeating it changes nothing.

        Raises:
            NotFoundError: there is no such job.
            StaleLeaseError: the lease was lost.
        """
        with self._database.write() as session:
            job, experiment = _lock(session, job_id)
            if token != job.token:
                raise stale(job)
            if job.state is not JobState.LEASED:
                return Change(experiment.id)
            self._end_attempt(session, experiment, job, kind, reason)
            return change_of(session, experiment, job)

    def expired(self) -> tuple[str, ...]:
        """Return the jobs whose lease is over, or ends later than any can; oldest first."""
        deadline, now = col(Job.lease_deadline), self._clock()
        odd = or_(deadline < now, deadline > self._latest(now))
        with self._database.read() as session:
            query = (
                select(Job.id)
                .where(Job.state == JobState.LEASED, odd)
                .order_by(deadline, col(Job.id))
            )
            return tuple(session.exec(query).all())

    def forget_ended(self) -> None:
        """Let go of what is kept in memory of experiments that have ended.

        They may have been cancelled, have failed, or have ended by another aggregator.
        """
        kept = self._shortcuts.kept()
        if not kept:
            return
        query = select(Experiment.id).where(
            col(Experiment.id).in_(kept), col(Experiment.state).in_(TERMINAL)
        )
        with self._database.read() as session:
            ended = session.exec(query).all()
        for experiment_id in ended:
            self._shortcuts.forget(experiment_id)

    def reap(self, job_id: str) -> Change | None:
        """End the lease of a job whose time is over: its attempt failed.

        One that rested is no cause of its worker's end, and counts no attempt.

        A lease that a clock set which was ahead lasts as long from now as any other.

        Returns:
            None when the lease was extended or the job ended in the meantime.
        """
        with self._database.write() as session:
            job, experiment = _lock(session, job_id)
            deadline, now = job.lease_deadline, self._clock()
            if job.state is not JobState.LEASED or deadline is None or deadline >= now:
                if deadline is not None and deadline > self._latest(now):
                    job.lease_deadline = now + self.lease_seconds
                return None
            reason = f"worker {job.worker!r} was silent for {self.lease_seconds:g} s"
            kind = FailureKind.RELEASED if job.resting else FailureKind.INFRASTRUCTURE
            self._end_attempt(session, experiment, job, kind, reason)
            return replace(change_of(session, experiment, job), kind=kind)

    def release_all(self) -> None:
        """Take back every lease without counting an attempt: no worker is left."""
        release = (
            update(Job)
            .where(col(Job.state) == JobState.LEASED)
            .values(state=JobState.PENDING, lease_deadline=None, worker="")
        )
        with self._database.write() as session:
            session.exec(release)

    def pending(
        self, experiment_id: str | None = None, limit: int | None = None
    ) -> tuple[str, ...]:
        """Return the ids of pending jobs, oldest experiment first, in candidate order.

        Args:
            experiment_id: Only those of one experiment.
            limit: Only the first ones.
        """
        with self._database.read() as session:
            return pending_jobs(session, experiment_id, limit)

    def pending_of_model(self, model_digest: str, limit: int) -> tuple[str, ...]:
        """Return ids of the first pending jobs of a model's experiments, oldest first."""
        with self._database.read() as session:
            return pending_of_model(session, model_digest, limit)

    def count_pending(self) -> int:
        """Count the pending jobs of all experiments."""
        query = select(func.count()).where(Job.state == JobState.PENDING)
        with self._database.read() as session:
            return session.exec(query).one()

    def _latest(self, now: float) -> float:
        """Return when a lease ends at the latest: aggregators' clocks may differ by a lease."""
        return now + 2 * self.lease_seconds

    def _claim(self, session: Session, requests: Sequence[ClaimRequest]) -> Sequence[Claim | None]:
        deadline = self._clock() + self.lease_seconds
        return lease_jobs(session, requests, deadline, self._checks)

    def _extend(
        self, session: Session, beats: Sequence[Beat]
    ) -> Sequence[bool | Exception | None]:
        """Extend leases together; None where somebody has locked the job of one in force."""
        in_force = extend_leases(session, beats, self._clock() + self.lease_seconds)
        pairs = tuple(zip(beats, in_force, strict=True))
        jobs = look_up(session, {beat.job_id for beat, extended in pairs if not extended})
        return [
            False if extended else end_of(beat, jobs.get(beat.job_id)) for beat, extended in pairs
        ]

    def _extend_one(self, session: Session, beats: Sequence[Beat]) -> Sequence[bool | Exception]:
        """Extend one lease, waiting for who has locked the job."""
        (beat,) = beats
        job = session.get(Job, beat.job_id, with_for_update=True)
        ended = end_of(beat, job)
        if job is not None and ended is None:
            job.lease_deadline = self._clock() + self.lease_seconds
            job.answers_done, job.resting = beat.answers_done, beat.resting
        return [False if ended is None else ended]

    def _store(
        self, session: Session, reports: Sequence[PackedReport]
    ) -> Sequence[Change | Exception]:
        return Reporting(session, self._checks, self._clock()).store(reports)

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
        attempt = f"{title(job)}: attempt {job.attempts} of {limit} failed: {reason}"
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


def _lock(session: Session, job_id: str) -> tuple[Job, Experiment]:
    """Lock the experiment of a job, then the job."""
    experiment = lock_experiment(session, find_job(session, job_id).experiment_id)
    job = session.get_one(Job, job_id, with_for_update=True, populate_existing=True)
    return job, experiment
