"""Results of jobs, stored together in one transaction and each answered for itself."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlmodel import Session, col

from modnorm.errors import ModnormError
from services.aggregator.bulk import ByIds, ids_of
from services.aggregator.lifecycle import close_job, event_of, has_open_jobs, standing_of
from services.aggregator.phases import job_ended
from services.aggregator.reports import Checks, Outcome, Report, evaluate_report
from services.aggregator.rows import AnyJob, CandidateRow, JobRow, lock_work
from services.aggregator.standing import Standing
from services.aggregator.states import ExperimentState, JobState, Split
from services.aggregator.stores.attempts import (
    Change,
    pending_jobs,
    stale,
    title,
    unknown_job,
)
from services.aggregator.stores.writes import PackedReport, Writes
from services.aggregator.tables import Experiment, Job
from services.aggregator.updates import is_iterative, opened_by

_JOBS = Job.metadata.tables["jobs"]
_EXPERIMENTS = ByIds(
    _JOBS.c.id,
    lambda found: (
        select(Experiment)
        .where(col(Experiment.id).in_(select(_JOBS.c.experiment_id).where(found)))
        .order_by(col(Experiment.id))
        .with_for_update(of=Experiment)
    ),
)
"""The experiments of some jobs, to be locked in one order."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A job that is locked, and its experiment, which was locked before it."""

    job: JobRow
    candidate: CandidateRow
    experiment: Experiment


class Reporting:
    """The reports of one transaction, stored in order.

    Args:
        session: The transaction.
        checks: What reports are checked against.
        now: The time.
    """

    def __init__(self, session: Session, checks: Checks, now: float) -> None:
        self._session = session
        self._checks = checks
        self._now = now
        self._standings: dict[str, Standing] = {}
        self._changed: dict[str, Experiment] = {}
        self._moved: set[str] = set()
        self._writes = Writes()

    def store(self, reports: Sequence[PackedReport]) -> list[Change | Exception]:
        """Store results, and move on each experiment whose phase ends by them.

        Returns:
            What each led to, or why it is refused; one that is refused changes nothing.
        """
        held = _lock(self._session, {packed.report.job_id for packed in reports})
        for one in held.values():
            self._standing(one.experiment)  # asked for later, it has the session write first
        outcomes = [self._store(held.get(packed.report.job_id), packed) for packed in reports]
        self._write()
        return outcomes

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
            self._session, held.experiment, job, held.candidate, report, self._checks
        )

    def _keep(self, held: _Held, packed: PackedReport, outcome: Outcome) -> Change:
        job, experiment = held.job, held.experiment
        state, was_leased = experiment.state, job.state is JobState.LEASED
        self._changed[experiment.id] = experiment
        standing = self._standing(experiment)
        job.metric = outcome.metric
        job.attempts += was_leased  # it counts, unless it did when its lease ended
        job.worker = packed.report.worker or job.worker
        if outcome.stopped is not None:
            experiment.candidates_stopped += 1
        close_job(experiment, job, done=True)
        standing.scored(job, was_leased=was_leased)
        self._writes.result(job, packed, outcome)
        message = f"{title(job)}: {outcome}"
        if has_open_jobs(experiment):
            event = event_of(experiment, message, self._now, standing)
            self._writes.event(experiment.id, event)
        else:
            self._moved.add(experiment.id)
            self._writes.flush(self._session, experiment.id)
            job_ended(self._session, experiment, job, message, self._now, standing=standing)
        if experiment.state is not state:
            del self._standings[experiment.id]
        return change_of(self._session, experiment, job)

    def _write(self) -> None:
        """Write what is noted, and what experiments count; the session writes those that moved."""
        stayed = [one for key, one in self._changed.items() if key not in self._moved]
        for experiment in stayed:
            self._writes.counts(experiment)
        self._writes.flush_all(self._session)
        for experiment in stayed:
            self._session.expunge(experiment)

    def _standing(self, experiment: Experiment) -> Standing:
        if experiment.id not in self._standings:
            self._standings[experiment.id] = standing_of(self._session, experiment)
        return self._standings[experiment.id]


def change_of(session: Session, experiment: Experiment, job: AnyJob) -> Change:
    """Tell what became pending when an attempt at a job ended."""
    if job.state is JobState.PENDING:
        return Change(experiment.id, (job.id,), job, experiment)
    entered = job.split is Split.SELECTION and experiment.state is ExperimentState.VOTING
    if is_iterative(experiment):
        entered = opened_by(experiment, job)
    pending = pending_jobs(session, experiment.id) if entered else ()
    return Change(experiment.id, pending, job, experiment)


def _lock(session: Session, job_ids: Collection[str]) -> dict[str, _Held]:
    """Lock the experiments of jobs, in one order, then the jobs."""
    experiments = session.execute(_EXPERIMENTS.of(session), ids_of(job_ids))
    by_id = {experiment.id: experiment for experiment in experiments.scalars()}
    return {
        key: _Held(work.job, work.candidate, by_id[work.job.experiment_id])
        for key, work in lock_work(session, job_ids).items()
    }
