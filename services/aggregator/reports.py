"""What a worker reports of a job, and whether it fits the job."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import Session

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.ranking import mean_reward
from services.aggregator.codec import StoredAnswer, pack_coefficients
from services.aggregator.known import Known
from services.aggregator.rows import CandidateRow, JobRow
from services.aggregator.states import Split
from services.aggregator.tables import Experiment


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a report says of the candidate."""

    metric: float
    """Mean selection reward, or held-out metric of the candidate alone."""
    coefficients: bytes
    """Packed, as the candidate keeps them."""


def evaluate_report(  # noqa: PLR0913, PLR0917 - a report and all that it must fit
    session: Session,
    experiment: Experiment,
    job: JobRow,
    candidate: CandidateRow,
    report: Report,
    known: Known,
) -> Outcome:
    """Check a report against its job, and reduce it to a metric and coefficients.

    Raises:
        InvalidInputError: a row is missing, repeated or unknown, a number is out of range, or
            the descriptor is not that of the job.
    """
    _check_seconds(report)
    selecting = job.split is Split.SELECTION
    count = experiment.selection_rows if selecting else experiment.heldout_rows
    _check_answers(report.answers, count)
    active = known.active_tensors(session, candidate.scale_map_digest)
    coefficients = _check_descriptor(candidate, report.descriptor, active)
    if selecting:
        metric = mean_reward([answer.reward for answer in report.answers])
    else:
        correct = [answer.correct for answer in report.answers]
        metric = known.heldout_metric(session, experiment, correct)
    return Outcome(metric, coefficients)


def _check_answers(answers: Sequence[StoredAnswer], count: int) -> None:
    if [answer.row for answer in answers] != list(range(count)):
        raise InvalidInputError(
            f"the answers must cover the rows 0 to {count - 1}, each once and in order",
            field="answers.row",
        )
    for answer in answers:
        if not math.isfinite(answer.reward):
            raise InvalidInputError(
                f"the reward of row {answer.row} is not finite", field="answers.reward"
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


def _check_descriptor(candidate: CandidateRow, reported: Descriptor, active: int) -> bytes:
    """Return the packed coefficients of a descriptor that is the candidate's."""
    stored = (
        candidate.noise,
        candidate.seed,
        candidate.method,
        candidate.radius,
        candidate.scale_map_digest,
    )
    if stored != (
        reported.noise,
        reported.seed,
        reported.method,
        reported.radius,
        reported.scale_map,
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
