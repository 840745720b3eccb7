"""Metrics of a trainer."""

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge

from modnorm.training import TrainedStudent


class TrainingOutcome(StrEnum):
    """How a claimed training ended at this trainer."""

    REPORTED = "reported"
    FAILED = "failed"
    RELEASED = "released"
    """The trainer stopped and returned the job without an attempt."""
    DROPPED = "dropped"
    """The lease was lost, or the experiment no longer needs the job."""


class TrainerMetrics:
    """Metrics of one trainer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs = Counter(
            "modnorm_trainer_jobs",
            "Claimed trainings that ended.",
            ("outcome",),
            registry=registry,
        )
        for outcome in TrainingOutcome:
            self._jobs.labels(outcome)
        self._tokens = Counter(
            "modnorm_trainer_tokens", "Tokens read in finished trainings.", registry=registry
        )
        self.busy = Gauge("modnorm_trainer_busy", "1 while a training runs.", registry=registry)

    def ended(self, outcome: TrainingOutcome) -> None:
        """Count a job."""
        self._jobs.labels(outcome).inc()

    def trained(self, student: TrainedStudent) -> None:
        """Count the tokens of a finished training."""
        self._tokens.inc(student.tokens)
