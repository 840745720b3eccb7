"""Reports of workers as data classes, and the checks of a report against its job."""

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from sqlmodel import Session

from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.ranking import mean_reward
from modnorm.search.stopping import Interval, score_interval
from modnorm.search.voting import Answer
from modnorm.services.aggregator.experiments.early_stop import EarlyStopCache
from modnorm.services.aggregator.storage.codec import pack_coefficients, unpack_rows
from modnorm.services.aggregator.storage.states import ArtifactKind, Split
from modnorm.services.aggregator.storage.stored_artifacts import load_rows, load_text
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.tasks import Row, Task, stated_bounds, task_errors

_SCALE_MAPS = 64
_ROWS = 4
MAX_REWARD = 1e30
"""Means of such rewards, and the steps computed from them, stay within float32."""


ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one job."""

    job_id: str
    token: int
    worker: str
    descriptor: Descriptor
    """The candidate with resolved coefficients."""
    answers: Sequence[Answer]
    environment: Mapping[str, str]
    switch_seconds: float
    generate_seconds: float
    score_seconds: float
    normaliser: float = field(default=0.0, kw_only=True)
    """Factor of the amplitudes that a generator proposed; 0 if it proposed none."""
    stopped: bool = False
    """Whether the candidate was stopped early, so that only some rows have answers."""


@dataclass(frozen=True, slots=True)
class CheckedReport:
    """The result computed from a report."""

    metric: float | None
    """Mean selection reward, or held-out metric of the candidate alone; None if rows that either
    needs are missing."""
    coefficients: bytes
    """Coefficients, packed as in the table of candidates."""
    stopped: Interval | None
    """Interval of the mean selection reward of a candidate that was stopped early."""

    def __str__(self) -> str:
        """Return a description in words."""
        if self.stopped is not None:
            return f"stopped early, {self.stopped.upper:.4f} at most"
        return "the votes left are settled" if self.metric is None else f"{self.metric:.4f}"


class ReportChecks:
    """Checks reports against stored jobs; used by several threads."""

    def __init__(self, early_stop: EarlyStopCache) -> None:
        self._early_stop = early_stop
        self._cache = _ReportCache()

    def evaluate(
        self,
        session: Session,
        experiment: Experiment,
        job: Job,
        candidate: Candidate,
        report: Report,
    ) -> CheckedReport:
        """Check a report against its job; return its metric and coefficients."""
        _check_seconds(report)
        _check_normaliser(candidate, report)
        for answer in report.answers:
            _check_answer(answer)
        active = self._cache.active_tensors(session, candidate.scale_map_digest)
        coefficients = _check_descriptor(candidate, report.descriptor, active)
        if report.stopped:
            stopped = self._check_stop(session, experiment, job, report)
            return CheckedReport(None, coefficients, stopped)
        return CheckedReport(self._metric(session, experiment, job, report), coefficients, None)

    def _metric(
        self, session: Session, experiment: Experiment, job: Job, report: Report
    ) -> float | None:
        digest, count = experiment.rows_of(job.split)
        if job.split is Split.SELECTION:
            _check_rows(report.answers, count)
            return mean_reward([answer.reward for answer in report.answers])
        _check_rows(report.answers, count, unpack_rows(job.skipped) if job.skipped else ())
        if job.split is Split.QUESTIONS or len(report.answers) < count:
            return None
        correct = [answer.correct for answer in report.answers]
        return self._cache.metric(session, experiment, digest, correct)

    def _check_stop(
        self, session: Session, experiment: Experiment, job: Job, report: Report
    ) -> Interval:
        """Check that a candidate was rightly stopped early; return its reward interval."""
        rows = experiment.selection_rows
        bounds = stated_bounds(self._cache.task(experiment))
        if job.split is not Split.SELECTION or bounds is None:
            raise InvalidInputError("this job may not be stopped early", field="stopped")
        _check_rows(report.answers, rows, range(rows))
        interval = score_interval([answer.reward for answer in report.answers], rows, bounds)
        threshold = self._early_stop.threshold(session, experiment, job.candidate)
        if threshold is not None and threshold.excludes(interval.upper, job.candidate):
            return interval
        raise InvalidInputError(
            f"candidate {job.candidate} can still reach {interval.upper:g} and be an expert",
            field="stopped",
            remedy="score all its rows",
        )


def _check_rows(answers: Sequence[Answer], count: int, optional: Collection[int] = ()) -> None:
    """Check that answers are in order and cover all rows except optional ones."""
    rows = [answer.row for answer in answers]
    given = set(rows)
    missing = set(range(count)) - given - set(optional)
    if missing or rows != sorted(given) or not given <= set(range(count)):
        raise InvalidInputError(
            f"the answers must cover the rows 0 to {count - 1}, each once and in order",
            field="answers.row",
        )


def _check_answer(answer: Answer) -> None:
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
        raise InvalidInputError("seconds must be finite and not negative", field="header")


def _check_normaliser(candidate: Candidate, report: Report) -> None:
    if candidate.needs_proposal and not (
        math.isfinite(report.normaliser) and report.normaliser > 0
    ):
        raise InvalidInputError(
            "a report with amplitudes must contain their normaliser", field="header.normaliser"
        )


def _check_descriptor(candidate: Candidate, reported: Descriptor, active: int) -> bytes:
    """Check that a descriptor is the candidate's; return its packed coefficients."""
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
            f"candidate {candidate.index} already has other coefficients",
            field="descriptor.coefficients",
            remedy="evaluate the candidate from its stored coefficients",
        )
    return packed


def _check_coefficients(values: Sequence[float], active: int) -> None:
    if len(values) != active or not all(map(math.isfinite, values)):
        raise InvalidInputError(
            f"there must be {active} finite coefficients, one for each active tensor",
            field="descriptor.coefficients",
        )


class _ReportCache:
    """Cache of immutable inputs by digest; used by several threads."""

    def __init__(self) -> None:
        self._active: _Recent[int] = _Recent(_SCALE_MAPS)
        self._tasks: _Recent[Task] = _Recent(_ROWS)
        self._rows: _Recent[tuple[Row, ...]] = _Recent(_ROWS)

    def active_tensors(self, session: Session, digest: str) -> int:
        """Return the number of tensors that a scale map perturbs."""

        def load() -> int:
            text = load_text(session, ArtifactKind.SCALE_MAP, digest)
            return len(ScaleMap.from_json(text).active)

        return self._active.find(digest, load)

    def metric(
        self, session: Session, experiment: Experiment, digest: str, correct: Sequence[bool]
    ) -> float:
        """Return the metric of one candidate alone."""
        rows = self._rows.find(digest, lambda: load_rows(session, digest))
        return task_errors.metric(self.task(experiment), rows, correct)

    def task(self, experiment: Experiment) -> Task:
        """Return the task of an experiment."""
        spec = experiment.spec.task
        key = (spec.name, spec.declaration, experiment.scorer)
        return self._tasks.find(key, experiment.task)


class _Recent(Generic[ValueT]):
    """Cache of the `size` most recently used values."""

    def __init__(self, size: int) -> None:
        self._values: BoundedDict[Hashable, ValueT] = BoundedDict(size)
        self._lock = Lock()

    def find(self, key: Hashable, load: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key; two threads may load it concurrently."""
        with self._lock:
            cached = self._values.get(key)
        value = load() if cached is None else cached
        with self._lock:
            self._values[key] = value
        return value
