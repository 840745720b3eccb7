"""Metrics of the sandbox."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from modnorm.sandbox import Isolation, ProgramOutcome, Verdict
from modnorm.services.common.metrics import CALL_BUCKETS


class SandboxMetrics:
    """Metrics of one sandbox."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.in_progress = Gauge(
            "modnorm_sandbox_programs_in_progress",
            "Programs that run or wait to run.",
            registry=registry,
        )
        self._verdicts = Counter(
            "modnorm_sandbox_verdicts", "Programs judged.", ("verdict",), registry=registry
        )
        for verdict in Verdict:
            self._verdicts.labels(verdict)
        self._seconds = Histogram(
            "modnorm_sandbox_program_seconds",
            "Wall time of a program, without its wait in the queue.",
            buckets=CALL_BUCKETS,
            registry=registry,
        )
        self._isolated = Gauge(
            "modnorm_sandbox_isolated",
            "1 if all guarantees held at the last measurement; programs run only then.",
            registry=registry,
        )

    def record_outcome(self, outcome: ProgramOutcome) -> None:
        """Count a verdict and its time."""
        self._verdicts.labels(outcome.verdict).inc()
        self._seconds.observe(outcome.wall_seconds)

    def record_isolation(self, isolation: Isolation) -> None:
        """Store whether a measurement found all guarantees."""
        self._isolated.set(isolation.healthy)
