"""What a worker reports of a job, and whether it fits the job."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlmodel import Session

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import Interval, score_interval
from modnorm.tasks import stated_bounds
from services.aggregator.codec import StoredAnswer, pack_coefficients, unpack_rows
from services.aggregator.known import Known
from services.aggregator.rows import CandidateRow, JobRow
from services.aggregator.shortcuts import Shortcuts
from services.aggregator.states import Split
from services.aggregator.tables import Experiment

MAX_REWARD = 1e30
"""Means of such rewards, and the steps that follow from them, stay within float32."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one job."""

    job_id: str
    token: int
    worker: str
    descriptor: Descriptor
    """With its coefficients resolved."""
    answers: Sequence[StoredAnswer]
    environment: Mapping[str, str]
    switch_seconds: float
    generate_seconds: float
    score_seconds: float
    normaliser: float = field(default=0.0, kw_only=True)
    """Of the amplitudes that a generator proposed; 0 where it proposed nothing."""
    stopped: bool = False
    """Whether the candidate was stopped early; then there are answers to some rows only."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What reports are checked against."""

    known: Known
    shortcuts: Shortcuts


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a report says of the candidate."""

    metric: float | None
    """Mean selection reward, or held-out metric of the candidate alone; None where rows that
    either needs are left out."""
    coefficients: bytes
    """Packed, as the candidate keeps them."""
    stopped: Interval | None
    """What the mean selection reward of a candidate that was stopped early can be."""

    def __str__(self) -> str:
        """Say it, for people."""
        if self.stopped is not None:
            return f"stopped early, {self.stopped.upper:.4f} at most"
        return "the votes left are settled" if self.metric is None else f"{self.metric:.4f}"


def evaluate_report(  # noqa: PLR0913, PLR0917 - a report and all that it must fit
    session: Session,
    experiment: Experiment,
    job: JobRow,
    candidate: CandidateRow,
    report: Report,
    checks: Checks,
) -> Outcome:
    """Check a report against its job, and reduce it to a metric and coefficients.

    Raises:
        InvalidInputError: a row is missing, repeated or unknown, a number is out of range, the
            descriptor is not that of the job, or the candidate could still be an expert.
        IncompatibleError: a reward is not what the task states.
    """
    _check_seconds(report)
    _check_normaliser(candidate, report)
    rows_digest, count = rows_of(experiment, job.split)
    for answer in report.answers:
        _check_answer(answer)
    active = checks.known.active_tensors(session, candidate.scale_map_digest)
    coefficients = _check_descriptor(candidate, report.descriptor, active)
    if report.stopped:
        stopped = _check_stop(session, experiment, job, report, checks)
        return Outcome(None, coefficients, stopped)
    if job.split is Split.SELECTION:
        _check_rows(report.answers, experiment.selection_rows)
        metric = mean_reward([answer.reward for answer in report.answers])
        return Outcome(metric, coefficients, None)
    _check_rows(report.answers, count, unpack_rows(job.skipped) if job.skipped else ())
    if len(report.answers) < count:
        return Outcome(None, coefficients, None)
    correct = [answer.correct for answer in report.answers]
    metric = checks.known.metric(session, experiment, rows_digest, correct)
    return Outcome(metric, coefficients, None)


def rows_of(experiment: Experiment, split: Split) -> tuple[str, int]:
    """Return digest and number of the rows that a split of an experiment consists of."""
    match split:
        case Split.SELECTION:
            return experiment.selection_digest, experiment.selection_rows
        case Split.HELDOUT:
            return experiment.heldout_digest, experiment.heldout_rows
        case Split.DEVELOPMENT:
            return experiment.development_digest, experiment.development_rows


def _check_stop(
    session: Session, experiment: Experiment, job: JobRow, report: Report, checks: Checks
) -> Interval:
    """Return the interval of a candidate that was rightly stopped early."""
    rows = experiment.selection_rows
    bounds = stated_bounds(checks.known.task(experiment))
    if job.split is not Split.SELECTION or bounds is None:
        raise InvalidInputError("nothing may be stopped early here", field="header.stopped")
    _check_rows(report.answers, rows, range(rows))
    interval = score_interval([answer.reward for answer in report.answers], rows, bounds)
    for fresh in (False, True):
        bar = checks.shortcuts.bar(session, experiment, job.candidate, fresh=fresh)
        if bar is not None and bar.shuts_out(interval.upper, job.candidate):
            return interval
    raise InvalidInputError(
        f"candidate {job.candidate} can still reach {interval.upper:g} and be an expert",
        field="header.stopped",
        remedy="score it to its end",
    )


def _check_rows(
    answers: Sequence[StoredAnswer], count: int, optional: Collection[int] = ()
) -> None:
    """Make sure that answers are in order and cover all rows but those that are optional."""
    rows = [answer.row for answer in answers]
    given = set(rows)
    missing = set(range(count)) - given - set(optional)
    if missing or rows != sorted(given) or not given <= set(range(count)):
        raise InvalidInputError(
            f"the answers must cover the rows 0 to {count - 1}, each once and in order",
            field="answers.row",
        )


def _check_answer(answer: StoredAnswer) -> None:
    if not abs(answer.reward) <= MAX_REWARD:
        raise InvalidInputError(
            f"the reward of row {answer.row} is not finite, or beyond {MAX_REWARD:g}",
            field="answers.reward",
        )
    if answer.correct and answer.vote is None:
        raise InvalidInputError(
            f"row {answer.row} has no vote and cannot be correct", field="answers.correct"
        )
    if answer.tokens < 0:
        raise InvalidInputError(
            f"row {answer.row} has a negative number of tokens", field="answers.tokens"
        )


def _check_seconds(report: Report) -> None:
    seconds = (report.switch_seconds, report.generate_seconds, report.score_seconds)
    if not all(math.isfinite(value) and value >= 0 for value in seconds):
        raise InvalidInputError("seconds are finite and not negative", field="header")


def _check_normaliser(candidate: CandidateRow, report: Report) -> None:
    if candidate.proposed and not (math.isfinite(report.normaliser) and report.normaliser > 0):
        raise InvalidInputError(
            "amplitudes of a generator come with their normaliser", field="header.normaliser"
        )


def _check_descriptor(candidate: CandidateRow, reported: Descriptor, active: int) -> bytes:
    """Return the packed coefficients of a descriptor that is the candidate's."""
    stored = (
        candidate.noise,
        candidate.seed,
        candidate.method,
        candidate.radius,
        candidate.scale_map_digest,
        candidate.lineage,
    )
    if stored != (
        reported.noise,
        reported.seed,
        reported.method,
        reported.radius,
        reported.scale_map,
        reported.lineage,
    ):
        raise InvalidInputError(
            f"the descriptor is not that of candidate {candidate.index}", field="descriptor"
        )
    values = reported.coefficients or ()
    _check_coefficients(values, active)
    packed = pack_coefficients(values)
    if candidate.coefficients not in {None, packed}:
        raise InvalidInputError(
            f"candidate {candidate.index} has other coefficients already",
            field="descriptor.coefficients",
            remedy="evaluate the candidate from its stored coefficients",
        )
    return packed


def _check_coefficients(values: Sequence[float], active: int) -> None:
    if len(values) != active or not all(map(math.isfinite, values)):
        raise InvalidInputError(
            f"there must be {active} finite coefficients, one an active tensor",
            field="descriptor.coefficients",
        )
