"""Results of jobs, stored together in one transaction and each answered for itself."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Self

from sqlmodel import Session, col, select

from modnorm.errors import ModnormError
from services.aggregator.codec import pack_answers
from services.aggregator.known import Known
from services.aggregator.lifecycle import close_job, standing_of
from services.aggregator.phases import job_ended
from services.aggregator.reports import Outcome, Report, evaluate_report
from services.aggregator.standing import Standing
from services.aggregator.states import ExperimentState, JobState, Split
from services.aggregator.stores.attempts import Change, pending_jobs, stale, title, unknown_job
from services.aggregator.tables import AnswerSheet, Candidate, Experiment, Job


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report whose answers are packed before any lock is taken for it."""

    report: Report
    answers: bytes | None
    """None where they cannot be packed; such a report is refused."""

    @classmethod
    def of(cls, report: Report) -> Self:
        """Pack the answers of a report."""
        try:
            return cls(report, pack_answers(report.answers))
        except ValueError:
            return cls(report, None)


@dataclass(frozen=True, slots=True)
class _Held:
    """A job that is locked, and its experiment, which was locked before it."""

    job: Job
    candidate: Candidate
    experiment: Experiment


class Reporting:
    """The reports of one transaction, stored in order.

    Args:
        session: The transaction.
        known: What reports are checked against.
        now: The time.
    """

    def __init__(self, session: Session, known: Known, now: float) -> None:
        self._session = session
        self._known = known
        self._now = now
        self._standings: dict[str, Standing] = {}

    def store(self, reports: Sequence[PackedReport]) -> list[Change | Exception]:
        """Store results, and move on each experiment whose phase ends by them.

        Returns:
            What each led to, or why it is refused; one that is refused changes nothing.
        """
        held = _lock(self._session, {packed.report.job_id for packed in reports})
        return [self._store(held.get(packed.report.job_id), packed) for packed in reports]

    def _store(self, held: _Held | None, packed: PackedReport) -> Change | Exception:
        try:
            if held is None:
                raise unknown_job(packed.report.job_id)
            outcome = self._check(held, packed.report)
        except ModnormError as error:
            return error
        # What goes wrong from here on undoes the whole transaction.
        if outcome is None:
            return Change(held.experiment.id)
        return self._keep(held, packed, outcome)

    def _check(self, held: _Held, report: Report) -> Outcome | None:
        """Find all that may be wrong with a report; None when it is stored already."""
        job = held.job
        if not job.token or report.token != job.token:
            raise stale(job)
        if job.state is JobState.DONE:
            return None
        if job.state not in {JobState.LEASED, JobState.PENDING}:
            raise stale(job)
        return evaluate_report(
            self._session, held.experiment, job, held.candidate, report, self._known
        )

    def _keep(self, held: _Held, packed: PackedReport, outcome: Outcome) -> Change:
        job, experiment = held.job, held.experiment
        state, was_leased = experiment.state, job.state is JobState.LEASED
        standing = self._standing(experiment)
        held.candidate.coefficients = outcome.coefficients
        job.metric = outcome.metric
        content = pack_answers(packed.report.answers) if packed.answers is None else packed.answers
        self._session.add(AnswerSheet(job_id=job.id, content=content))
        _fill_in(job, packed.report)
        close_job(experiment, job, done=True)
        standing.scored(job, was_leased=was_leased)
        message = f"{title(job)}: {outcome.metric:.4f}"
        job_ended(self._session, experiment, job, message, self._now, standing=standing)
        if experiment.state is not state:
            del self._standings[experiment.id]
        return change_of(self._session, experiment, job)

    def _standing(self, experiment: Experiment) -> Standing:
        if experiment.id not in self._standings:
            self._standings[experiment.id] = standing_of(self._session, experiment)
        return self._standings[experiment.id]


def change_of(session: Session, experiment: Experiment, job: Job) -> Change:
    """Tell what became pending when an attempt at a job ended."""
    if job.state is JobState.PENDING:
        return Change(experiment.id, (job.id,), job, experiment)
    entered = job.split is Split.SELECTION and experiment.state is ExperimentState.VOTING
    pending = pending_jobs(session, experiment.id) if entered else ()
    return Change(experiment.id, pending, job, experiment)


def _lock(session: Session, job_ids: Collection[str]) -> dict[str, _Held]:
    """Lock the experiments of jobs, in one order, then the jobs."""
    of_jobs = select(Job.experiment_id).where(col(Job.id).in_(job_ids)).distinct()
    experiments = session.exec(
        select(Experiment)
        .where(col(Experiment.id).in_(session.exec(of_jobs).all()))
        .order_by(col(Experiment.id))
        .with_for_update()
    )
    by_id = {experiment.id: experiment for experiment in experiments}
    jobs = session.exec(
        select(Job, Candidate)
        .join(
            Candidate,
            (col(Candidate.experiment_id) == col(Job.experiment_id))
            & (col(Candidate.index) == col(Job.candidate)),
        )
        .where(col(Job.id).in_(job_ids))
        .with_for_update(of=Job)
    )
    return {job.id: _Held(job, candidate, by_id[job.experiment_id]) for job, candidate in jobs}


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
