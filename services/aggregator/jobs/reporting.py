"""Reports: their checks against jobs, and the storage of many in one transaction."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from sqlmodel import Session, col, select

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import Answer
from modnorm.search.ranking import mean_reward
from modnorm.services.aggregator.experiments.lifecycle import (
    Change,
    PhaseProgress,
    close_job,
    next_event,
)
from modnorm.services.aggregator.experiments.phases import job_ended
from modnorm.services.aggregator.jobs.leases import Claim, stale
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.lookups import (
    is_candidate_of_job,
    load_rows,
    load_text,
    unknown_job,
)
from modnorm.services.aggregator.storage.tables import (
    AnswerSheet,
    Candidate,
    Event,
    Experiment,
    Job,
    JobState,
    Split,
    pack_coefficients,
)
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.spec_limits import MAX_COUNT
from modnorm.tasks import Row, Task, task_errors
from modnorm.v1.evaluation_pb2 import ReportJobRequest
from modnorm.wire.conversions import descriptor_from_proto

_SCALE_MAPS = 64
_ROWS = 4


class ReportChecks:
    """Checks reports against stored jobs and sets their results; used by several threads."""

    def __init__(self) -> None:
        # Immutable inputs by digest.
        self._active: BoundedDict[str, int] = BoundedDict(_SCALE_MAPS)
        self._tasks: BoundedDict[tuple[str, str | None, str], Task] = BoundedDict(_ROWS)
        self._rows: BoundedDict[str, tuple[Row, ...]] = BoundedDict(_ROWS)

    def apply(
        self, session: Session, held: Claim, report: ReportJobRequest, answers: Sequence[Answer]
    ) -> None:
        """Check a report and its answers against its job, then set the columns that follow.

        An error leaves job and candidate as they were.
        """
        job, candidate = held.job, held.candidate
        for field in ("switch_seconds", "generate_seconds", "score_seconds"):
            if not 0 <= getattr(report, field) < math.inf:
                raise InvalidInputError("seconds must be finite and not negative", field=field)
        if candidate.needs_proposal and not 0 < report.normaliser < math.inf:
            raise InvalidInputError(
                "a report with amplitudes must contain their normaliser", field="normaliser"
            )
        for answer in answers:
            _check_answer(answer)

        def count_active() -> int:
            text = load_text(session, candidate.scale_map_digest)
            return len(ScaleMap.from_json(text).active)

        active = self._active.find(candidate.scale_map_digest, count_active)
        reported = descriptor_from_proto(report.descriptor)
        coefficients = _check_descriptor(candidate, reported, active)
        job.metric = self._metric(session, held.experiment, job, answers)
        candidate.coefficients, candidate.normaliser = coefficients, report.normaliser or None
        job.answers_done = len(answers)
        job.correct = sum(answer.correct for answer in answers)
        job.valid = sum(answer.vote is not None for answer in answers)
        job.truncated = sum(answer.truncated for answer in answers)
        job.tokens = sum(answer.tokens for answer in answers)
        job.worker = report.worker or job.worker
        job.error = job.remedy = ""
        job.switch_seconds = report.switch_seconds
        job.generate_seconds = report.generate_seconds
        job.score_seconds = report.score_seconds
        job.environment = json.dumps(dict(sorted(report.environment.items())))

    def _metric(
        self, session: Session, experiment: Experiment, job: Job, answers: Sequence[Answer]
    ) -> float | None:
        digest, count = experiment.rows_of(job.split)
        if [answer.row for answer in answers] != list(range(count)):
            raise InvalidInputError(
                f"the answers must cover the rows 0 to {count - 1}, each once and in order",
                field="answers.row",
            )
        if job.split is Split.SELECTION:
            return mean_reward([answer.reward for answer in answers])
        if job.split is Split.QUESTIONS:
            return None
        rows = self._rows.find(digest, lambda: load_rows(session, digest))
        named = experiment.spec.task
        key = (named.name, named.declaration, experiment.scorer)
        task = self._tasks.find(key, experiment.task)
        return task_errors.metric(task, rows, [answer.correct for answer in answers])


def _check_answer(answer: Answer) -> None:
    if not abs(answer.reward) <= task_errors.MAX_REWARD:
        raise InvalidInputError(
            f"the reward of row {answer.row} is not finite, or beyond {task_errors.MAX_REWARD:g}",
            field="answers.reward",
        )
    if answer.correct and answer.vote is None:
        raise InvalidInputError(
            f"row {answer.row} has no vote and cannot be correct", field="answers.correct"
        )
    if not 0 <= answer.tokens <= MAX_COUNT:
        raise InvalidInputError(
            f"the tokens of row {answer.row} are negative, or more than {MAX_COUNT:,}",
            field="answers.tokens",
        )


def _check_descriptor(candidate: Candidate, reported: Descriptor, active: int) -> bytes:
    """Check that a descriptor is the candidate's; return its packed coefficients."""
    if replace(candidate.descriptor, coefficients=reported.coefficients) != reported:
        raise InvalidInputError(
            f"the descriptor is not that of candidate {candidate.index}", field="descriptor"
        )
    values = reported.coefficients or ()
    if len(values) != active or not all(map(math.isfinite, values)):
        raise InvalidInputError(
            f"there must be {active} finite coefficients, one for each active tensor",
            field="descriptor.coefficients",
        )
    packed = pack_coefficients(values)
    if candidate.coefficients not in {None, packed}:
        raise InvalidInputError(
            f"candidate {candidate.index} already has other coefficients",
            field="descriptor.coefficients",
            remedy="evaluate the candidate from its stored coefficients",
        )
    return packed


class Reporting:
    """The reports of one transaction."""

    def __init__(self, session: Session, checks: ReportChecks) -> None:
        self._session = session
        self._checks = checks
        self._progress: dict[str, PhaseProgress] = {}
        self._answer_sheets: list[Mapping[str, object]] = []
        self._events: list[Mapping[str, object]] = []

    def store(
        self,
        reports: Sequence[ReportJobRequest],
        sheets: Sequence[Sequence[Answer] | ModnormError],
    ) -> list[Change | Exception]:
        """Store results, whose answers are read; return the change or refusal of each report."""
        held = _lock(self._session, {report.lease.job_id for report in reports})
        for one in held.values():
            self._progress_of(one.experiment)  # a later read would flush after each report
        answers = [
            self._answer(held.get(report.lease.job_id), report, sheet)
            for report, sheet in zip(reports, sheets, strict=True)
        ]
        self._insert()
        return answers

    def _answer(
        self, held: Claim | None, report: ReportJobRequest, sheet: Sequence[Answer] | ModnormError
    ) -> Change | Exception:
        try:
            if held is None:
                raise unknown_job(report.lease.job_id)
            job = held.job
            if not job.token or report.lease.token != job.token:
                raise stale(job)
            if job.state is JobState.DONE:  # by an equal report
                return Change(held.experiment.id)
            if job.state not in {JobState.LEASED, JobState.PENDING}:
                raise stale(job)
            if isinstance(sheet, ModnormError):
                return sheet
            with self._session.no_autoflush:
                self._checks.apply(self._session, held, report, sheet)
        except ModnormError as error:
            return error
        # From here on an error rolls back the whole transaction.
        experiment = held.experiment
        state, was_leased = experiment.state, job.state is JobState.LEASED
        progress = self._progress_of(experiment)
        job.attempts += was_leased  # an expired lease has counted its attempt
        self._answer_sheets.append({"job_id": job.id, "content": report.answers})
        close_job(experiment, job, done=True)
        progress.scored(job, was_leased=was_leased)
        outcome = "answered" if job.metric is None else f"{job.metric:.4f}"
        message = f"{job.title}: {outcome}"
        opened = False
        if experiment.has_open_jobs:
            self._events.append(next_event(self._session, experiment, message, progress))
        else:
            self._insert()
            opened = job_ended(self._session, experiment, job, message, progress=progress)
        if experiment.state is not state:
            del self._progress[experiment.id]
        return Change.by_job(experiment, job, pending=opened)

    def _insert(self) -> None:
        """Insert the collected rows, many at a time."""
        insert_rows(self._session, AnswerSheet, self._answer_sheets)
        insert_rows(self._session, Event, self._events)
        self._answer_sheets, self._events = [], []

    def _progress_of(self, experiment: Experiment) -> PhaseProgress:
        if experiment.id not in self._progress:
            self._progress[experiment.id] = PhaseProgress.of(self._session, experiment)
        return self._progress[experiment.id]


def _lock(session: Session, job_ids: Collection[str]) -> dict[str, Claim]:
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
    return {job.id: Claim(job, candidate, by_id[job.experiment_id]) for job, candidate in jobs}
