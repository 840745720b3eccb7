"""Storage of many reports in one transaction, each answered separately."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from sqlmodel import Session, col, select

from modnorm.errors import ModnormError
from modnorm.services.aggregator.experiments.lifecycle import (
    Change,
    PhaseProgress,
    close_job,
    next_event,
)
from modnorm.services.aggregator.experiments.phases import change_of, job_ended
from modnorm.services.aggregator.jobs.report_checks import CheckedReport, Report, ReportChecks
from modnorm.services.aggregator.jobs.worker_requests import stale
from modnorm.services.aggregator.storage.codec import pack_answers
from modnorm.services.aggregator.storage.lookups import is_candidate_of_job, unknown_job
from modnorm.services.aggregator.storage.result_tables import AnswerSheet
from modnorm.services.aggregator.storage.states import JobState
from modnorm.services.aggregator.storage.table_statistics import insert_rows
from modnorm.services.aggregator.storage.tables import Candidate, Event, Experiment, Job


@dataclass(frozen=True, slots=True)
class PackedReport:
    """A report whose answers are packed before its job is locked."""

    report: Report
    answers: bytes
    """Packed answers; empty if they cannot be packed, and the checks refuse the report."""

    @classmethod
    def of(cls, report: Report) -> Self:
        """Pack the answers of a report."""
        try:
            return cls(report, pack_answers(report.answers))
        except ValueError:  # a reward that is not finite
            return cls(report, b"")


@dataclass(frozen=True, slots=True)
class _Held:
    """A locked job with its candidate and its locked experiment."""

    job: Job
    candidate: Candidate
    experiment: Experiment


class Reporting:
    """The reports of one transaction.

    Each report is checked against committed scores only. The scores of this transaction may still
    be rolled back, so they are flushed after the last report of their experiment.
    """

    def __init__(self, session: Session, checks: ReportChecks, now: float) -> None:
        self._session = session
        self._checks = checks
        self._now = now
        self._progress: dict[str, PhaseProgress] = {}
        self._answer_sheets: list[Mapping[str, object]] = []
        self._events: list[Mapping[str, object]] = []

    def store(self, reports: Sequence[PackedReport]) -> list[Change | Exception]:
        """Store results; advance each experiment whose phase they finish."""
        held = _lock(self._session, {packed.report.job_id for packed in reports})
        for one in held.values():
            self._progress_of(one.experiment)  # a later read would flush after each report
        pairs = [(held.get(packed.report.job_id), packed) for packed in reports]
        answers = {place: self._answer(*pairs[place]) for place in _by_experiment(pairs)}
        self._insert()
        return [answers[place] for place in range(len(pairs))]

    def _answer(self, held: _Held | None, packed: PackedReport) -> Change | Exception:
        try:
            if held is None:
                raise unknown_job(packed.report.job_id)
            with self._session.no_autoflush:
                outcome = self._check(held, packed.report)
        except ModnormError as error:
            return error
        # From here on an error rolls back the whole transaction.
        if outcome is None:
            return Change(held.experiment.id)
        return self._keep(held, packed, outcome)

    def _check(self, held: _Held, report: Report) -> CheckedReport | None:
        """Check a report; return its outcome, or None if the job's result is stored already."""
        job = held.job
        if not job.token or report.token != job.token:
            raise stale(job)
        if job.state is JobState.DONE:
            return None
        if job.state not in {JobState.LEASED, JobState.PENDING}:
            raise stale(job)
        return self._checks.evaluate(self._session, held.experiment, job, held.candidate, report)

    def _keep(self, held: _Held, packed: PackedReport, outcome: CheckedReport) -> Change:
        job, experiment = held.job, held.experiment
        state, was_leased = experiment.state, job.state is JobState.LEASED
        progress = self._progress_of(experiment)
        job.attempts += was_leased  # an expired lease has counted its attempt
        _set_result(job, packed.report, outcome)
        held.candidate.coefficients = outcome.coefficients
        held.candidate.normaliser = packed.report.normaliser or None
        self._answer_sheets.append({"job_id": job.id, "content": packed.answers})
        experiment.candidates_stopped += outcome.stopped is not None
        close_job(experiment, job, done=True)
        progress.scored(job, was_leased=was_leased)
        message = f"{job.title}: {outcome}"
        if experiment.has_open_jobs:
            self._events.append(next_event(experiment, message, self._now, progress))
        else:
            self._insert()
            job_ended(self._session, experiment, job, message, self._now, progress=progress)
        if experiment.state is not state:
            del self._progress[experiment.id]
        return change_of(experiment, job)

    def _insert(self) -> None:
        """Insert the collected rows, many at a time."""
        insert_rows(self._session, AnswerSheet, self._answer_sheets)
        insert_rows(self._session, Event, self._events)
        self._answer_sheets, self._events = [], []

    def _progress_of(self, experiment: Experiment) -> PhaseProgress:
        if experiment.id not in self._progress:
            self._progress[experiment.id] = PhaseProgress.of(self._session, experiment)
        return self._progress[experiment.id]


def _set_result(job: Job, report: Report, outcome: CheckedReport) -> None:
    """Set the columns of a job that its report determines."""
    job.worker = report.worker or job.worker
    job.error = job.remedy = ""
    job.metric = outcome.metric
    job.reward_lower = outcome.stopped.lower if outcome.stopped else None
    job.reward_upper = outcome.stopped.upper if outcome.stopped else None
    job.answers_done = len(report.answers)
    job.correct = sum(answer.correct for answer in report.answers)
    job.valid = sum(answer.vote is not None for answer in report.answers)
    job.truncated = sum(answer.truncated for answer in report.answers)
    job.tokens = sum(answer.tokens for answer in report.answers)
    job.switch_seconds = report.switch_seconds
    job.generate_seconds = report.generate_seconds
    job.score_seconds = report.score_seconds
    job.environment = json.dumps(dict(sorted(report.environment.items())))


def _lock(session: Session, job_ids: Collection[str]) -> dict[str, _Held]:
    """Lock the experiments of jobs by id, then the jobs."""
    wanted = col(Job.id).in_(job_ids)
    experiments = session.exec(
        select(Experiment)
        .where(col(Experiment.id).in_(select(Job.experiment_id).where(wanted)))
        .order_by(col(Experiment.id))
        .with_for_update(of=Experiment)
    )
    by_id = {experiment.id: experiment for experiment in experiments}
    jobs = session.exec(
        select(Job, Candidate)
        .join(Candidate, is_candidate_of_job())
        .where(wanted)
        .with_for_update(of=Job)
    )
    return {job.id: _Held(job, candidate, by_id[job.experiment_id]) for job, candidate in jobs}


def _by_experiment(pairs: Sequence[tuple[_Held | None, PackedReport]]) -> list[int]:
    """Return the positions of reports, grouped by experiment, in order."""

    def experiment_of(place: int) -> str:
        held, _ = pairs[place]
        return held.experiment.id if held else ""

    return sorted(range(len(pairs)), key=experiment_of)
