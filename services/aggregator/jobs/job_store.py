"""Store of jobs: claims, heartbeats, reports and failures."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Exists, SQLColumnExpression, or_, update
from sqlmodel import Session, col, exists, select

from modnorm.errors import ModnormError, UnavailableError
from modnorm.search.answers import Answer
from modnorm.services.aggregator.experiments.lifecycle import Change, close_job, fail, record
from modnorm.services.aggregator.experiments.phases import job_ended
from modnorm.services.aggregator.experiments.reuse import evaluations_of
from modnorm.services.aggregator.jobs.leases import Claim, extend_leases, lease_jobs, stale
from modnorm.services.aggregator.jobs.reporting import ReportChecks, Reporting
from modnorm.services.aggregator.storage.database import Database, transaction_time
from modnorm.services.aggregator.storage.dialects import database_time
from modnorm.services.aggregator.storage.lookups import lock_experiment, lock_job
from modnorm.services.aggregator.storage.tables import (
    TERMINAL,
    Event,
    Experiment,
    FailureKind,
    Job,
    JobState,
)
from modnorm.v1.evaluation_pb2 import ClaimJobRequest, LeaseProgress, LeaseState, ReportJobRequest
from modnorm.wire.answer_sheets import read_answers
from modnorm.wire.run_messages import with_remedy

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

logger = logging.getLogger(__name__)

UNFIT_SECONDS = 10.0
"""Seconds without an event after which an experiment waits. A fit evaluator claims at once."""


class JobStore:
    """The jobs of all experiments.

    Leases are judged by the database's clock: an aggregator's clock that jumps ends none.
    """

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._checks = ReportChecks()
        self.lease_seconds = lease_seconds

    def claim_all(self, asked: Sequence[ClaimJobRequest]) -> Sequence[Claim | Exception | None]:
        """Lease the next jobs to workers; None where there is none."""
        return _together_or_alone(asked, self._claim)

    def _claim(self, asked: Sequence[ClaimJobRequest]) -> Sequence[Claim | None]:
        with self._database.write() as session:
            return lease_jobs(session, asked, self._deadline(session))

    def heartbeat(self, beats: Sequence[LeaseProgress]) -> Sequence[LeaseState]:
        """Extend leases; return the state of each."""
        with self._database.write() as session:
            return extend_leases(session, beats, self._deadline(session))

    def report_all(self, reports: Sequence[ReportJobRequest]) -> Sequence[Change | Exception]:
        """Store the results of jobs; advance each experiment whose phase they finish.

        A report under the token of the last lease is accepted after that lease expired, until
        another worker claims the job. A repeated report changes nothing.
        """
        return _together_or_alone(reports, self._report)

    def _report(self, reports: Sequence[ReportJobRequest]) -> Sequence[Change | Exception]:
        sheets = [_read_sheet(report) for report in reports]  # before anything is locked
        with self._database.write() as session:
            answers = Reporting(session, self._checks).store(reports, sheets)
        self._share([one.job.id for one in answers if isinstance(one, Change) and one.job])
        return answers

    def _share(self, job_ids: Sequence[str]) -> None:
        """Add finished evaluations to those that several databases share.

        The reports are stored already, so a failure costs only the reuse of their evaluations.
        """
        cache = self._database.evaluations
        if cache is None or not job_ids:
            return
        try:
            with self._database.read() as session:
                finished = evaluations_of(session, job_ids)
            cache.add(finished)
        except ModnormError as error:
            logger.warning("finished evaluations are not shared: %s", error)

    def fail(  # noqa: PLR0913 - the failure and its job
        self,
        job_id: str,
        token: int,
        kind: FailureKind,
        reason: str,
        remedy: str = "",
        *,
        unfit: bool = False,
    ) -> Change:
        """Store that an attempt failed; a repeated call changes nothing.

        An unfit worker released the job because it lacks something that the job needs.
        """
        with self._database.write() as session:
            job, experiment = lock_job(session, job_id)
            if token != job.token:
                raise stale(job)
            if job.state is not JobState.LEASED:
                return Change(experiment.id)
            change = _end_attempt(session, experiment, job, kind, reason, remedy=remedy)
            if unfit:
                _record_unfit(session, experiment, reason)
            return change

    def record_start(self, job_id: str, token: int, stage: str) -> Change:
        """Record what the start of a worker's engine does, unless other workers answer by now."""
        with self._database.write() as session:
            job, experiment = lock_job(session, job_id)
            change = Change(experiment.id)
            if job.state is not JobState.LEASED or job.token != token:
                return change
            if stage and session.exec(select(_is_answered(experiment.id))).one():
                return change
            message = f"the engine starts: {stage}" if stage else "the engine is ready"
            waits_for = message if stage else ""
            record(session, experiment, message, waits_for=waits_for, engine_stage=stage)
        return change

    def end_waits(self) -> tuple[Change, ...]:
        """Record which experiments no longer wait, since a leased job of them has answers.

        A lease alone proves nothing: an evaluator claims a job before it sees what it lacks.
        """
        waiting = (col(Experiment.state).not_in(TERMINAL), Experiment.waits_for != "")
        query = select(Experiment.id).where(*waiting, _is_answered(col(Experiment.id)))
        with self._database.read() as session:
            ended = session.exec(query).all()
        for experiment_id in ended:
            with self._database.write() as session:
                experiment = lock_experiment(session, experiment_id)
                if experiment.state not in TERMINAL and experiment.waits_for:
                    message = "no longer waiting: an evaluator answers its rows"
                    record(session, experiment, message)
        return tuple(map(Change, ended))

    def lease_time(self) -> float:
        """Return the present time of the clock that leases are judged by."""
        with self._database.read() as session:
            return database_time(session)

    def expired(self) -> tuple[str, ...]:
        """Return the jobs whose lease expired or ends impossibly late, earliest deadline first."""
        deadline = col(Job.lease_deadline)
        with self._database.read() as session:
            now = database_time(session)
            invalid = or_(deadline < now, deadline > self._latest(now))
            query = (
                select(Job.id)
                .where(Job.state == JobState.LEASED, invalid)
                .order_by(deadline, col(Job.id))
            )
            return tuple(session.exec(query).all())

    def reap(self, job_id: str) -> Change | None:
        """End the expired lease of a job, whose attempt has failed.

        A job that waits has not begun, so it keeps its attempts. If a wrong clock
        set a deadline too far in the future, the deadline is moved to one lease from now.
        """
        with self._database.write() as session:
            job, experiment = lock_job(session, job_id)
            deadline, now = job.lease_deadline, database_time(session)
            if job.state is not JobState.LEASED or deadline is None or deadline >= now:
                if deadline is not None and deadline > self._latest(now):
                    job.lease_deadline = now + self.lease_seconds
                return None
            reason = f"worker {job.worker!r} was silent for {self.lease_seconds:g} s"
            kind = FailureKind.RELEASED if job.waits else FailureKind.INFRASTRUCTURE
            return _end_attempt(session, experiment, job, kind, reason)

    def release_all(self) -> None:
        """Release every lease without counting an attempt, when all workers have ended."""
        release = (
            update(Job)
            .where(col(Job.state) == JobState.LEASED)
            .values(state=JobState.PENDING, lease_deadline=None, worker="")
        )
        with self._database.write() as session:
            session.exec(release)

    def _latest(self, now: float) -> float:
        """Return the latest plausible deadline, even of an aggregator with a longer lease."""
        return now + 2 * self.lease_seconds

    def _deadline(self, session: Session) -> float:
        return database_time(session) + self.lease_seconds


def _together_or_alone(
    items: Sequence[ItemT], work: Callable[[Sequence[ItemT]], Sequence[AnswerT]]
) -> Sequence[AnswerT | Exception]:
    """Work on items in one transaction; if it fails, on each alone, so that one fails alone."""
    try:
        return work(items)
    except UnavailableError as error:
        return [error] * len(items)
    except Exception as error:  # noqa: BLE001 - every error is the answer to one item
        if len(items) == 1:
            return [error]
        return [answer for item in items for answer in _together_or_alone([item], work)]


def _read_sheet(report: ReportJobRequest) -> Sequence[Answer] | ModnormError:
    try:
        return read_answers(report.answers)
    except ModnormError as error:
        return error


def _end_attempt(  # noqa: PLR0913 - the failure and its place
    session: Session,
    experiment: Experiment,
    job: Job,
    kind: FailureKind,
    reason: str,
    *,
    remedy: str = "",
) -> Change:
    """Make the job of a failed attempt pending again, or fail it and perhaps its experiment."""
    job.lease_deadline = None
    if kind is FailureKind.RELEASED:
        job.state = JobState.PENDING
        return Change.by_job(experiment, job, kind, pending=True)
    job.attempts += 1
    job.error, job.remedy = reason, remedy
    limit = experiment.spec.failures.max_attempts
    failed = with_remedy(reason, remedy)
    message = f"{job.title}: attempt {job.attempts} of {limit} failed: {failed}"
    if kind is FailureKind.INFRASTRUCTURE and job.attempts < limit:
        job.state = JobState.PENDING
        record(session, experiment, message, waits_for=f"another attempt; {message}")
        return Change.by_job(experiment, job, kind, pending=True)
    close_job(experiment, job, done=False)
    opened = False
    if kind is FailureKind.FATAL:
        fail(session, experiment, reason, remedy=remedy)
    else:
        opened = job_ended(session, experiment, job, message)
    return Change.by_job(experiment, job, kind, pending=opened)


def _record_unfit(session: Session, experiment: Experiment, reason: str) -> None:
    """Record why an evaluator released a job, unless another evaluates the experiment.

    The pause between two events limits their number when evaluators differ in their reasons.
    """
    reason = f"an evaluator released its jobs: {reason}"
    if experiment.state in TERMINAL or reason == experiment.waits_for:
        return
    last = session.get_one(Event, (experiment.id, experiment.last_cursor))
    since = abs(transaction_time(session) - last.time)
    if since < UNFIT_SECONDS:  # a later event is not recent: the clock was put back
        return
    leased = exists().where(
        col(Job.experiment_id) == experiment.id, col(Job.state) == JobState.LEASED
    )
    if not session.exec(select(leased)).one():
        record(session, experiment, f"waiting: {reason}", waits_for=reason)


def _is_answered(experiment_id: SQLColumnExpression[str] | str) -> Exists:
    """Return the condition that a leased job of an experiment has answers."""
    return exists().where(
        col(Job.experiment_id) == experiment_id,
        col(Job.state) == JobState.LEASED,
        col(Job.answers_done) > 0,
    )
