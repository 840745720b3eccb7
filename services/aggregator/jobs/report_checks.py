"""Reports of workers, and the checks that a report fits its job."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlmodel import Session

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import Interval, score_interval
from modnorm.tasks import stated_bounds
from services.aggregator.experiments.early_stop import EarlyStopCache
from services.aggregator.jobs.report_cache import ReportCache
from services.aggregator.storage.codec import StoredAnswer, pack_coefficients, unpack_rows
from services.aggregator.storage.states import Split
from services.aggregator.storage.tables import Candidate, Experiment, Job

MAX_REWARD = 1e30
"""Means of such rewards, and the steps computed from them, stay within float32."""


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
    """Factor of the amplitudes that a generator proposed; 0 if it proposed none."""
    stopped: bool = False
    """Whether the candidate was stopped early, with answers to some rows only."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result that follows from a report."""

    metric: float | None
    """Mean selection reward, or held-out metric of the candidate alone; None if rows that either
    needs are missing."""
    coefficients: bytes
    """Packed as in the table of candidates."""
    stopped: Interval | None
    """The possible mean selection rewards of a candidate that was stopped early."""

    def __str__(self) -> str:
        """Describe it for people."""
        if self.stopped is not None:
            return f"stopped early, {self.stopped.upper:.4f} at most"
        return "the votes left are settled" if self.metric is None else f"{self.metric:.4f}"


class ReportChecks:
    """Checks reports against what is stored; used by several threads.

    Args:
        early_stop: The bars that candidates must reach.
    """

    def __init__(self, early_stop: EarlyStopCache) -> None:
        self._early_stop = early_stop
        self._cache = ReportCache()

    def evaluate(
        self,
        session: Session,
        experiment: Experiment,
        job: Job,
        candidate: Candidate,
        report: Report,
    ) -> Outcome:
        """Check a report against its job, and reduce it to a metric and coefficients.

        Raises:
            InvalidInputError: a row is missing, repeated or unknown, a number is out of range, the
                descriptor is not that of the job, or the candidate could still be an expert.
            IncompatibleError: a reward is not what the task states.
        """
        _check_seconds(report)
        _check_normaliser(candidate, report)
        for answer in report.answers:
            _check_answer(answer)
        active = self._cache.active_tensors(session, candidate.scale_map_digest)
        coefficients = _check_descriptor(candidate, report.descriptor, active)
        if report.stopped:
            stopped = self._check_stop(session, experiment, job, report)
            return Outcome(None, coefficients, stopped)
        return Outcome(self._metric(session, experiment, job, report), coefficients, None)

    def _metric(
        self, session: Session, experiment: Experiment, job: Job, report: Report
    ) -> float | None:
        digest, count = experiment.rows_of(job.split)
        if job.split is Split.SELECTION:
            _check_rows(report.answers, count)
            return mean_reward([answer.reward for answer in report.answers])
        _check_rows(report.answers, count, unpack_rows(job.skipped) if job.skipped else ())
        if len(report.answers) < count:
            return None
        correct = [answer.correct for answer in report.answers]
        return self._cache.metric(session, experiment, digest, correct)

    def _check_stop(
        self, session: Session, experiment: Experiment, job: Job, report: Report
    ) -> Interval:
        """Return the interval of a candidate that was rightly stopped early."""
        rows = experiment.selection_rows
        bounds = stated_bounds(self._cache.task(experiment))
        if job.split is not Split.SELECTION or bounds is None:
            raise InvalidInputError("nothing may be stopped early here", field="header.stopped")
        _check_rows(report.answers, rows, range(rows))
        interval = score_interval([answer.reward for answer in report.answers], rows, bounds)
        for fresh in (False, True):
            bar = self._early_stop.bar(session, experiment, job.candidate, fresh=fresh)
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


def _check_normaliser(candidate: Candidate, report: Report) -> None:
    if candidate.needs_proposal and not (
        math.isfinite(report.normaliser) and report.normaliser > 0
    ):
        raise InvalidInputError(
            "amplitudes of a generator come with their normaliser", field="header.normaliser"
        )


def _check_descriptor(candidate: Candidate, reported: Descriptor, active: int) -> bytes:
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
