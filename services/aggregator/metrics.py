"""Metrics of the aggregator: counters of its work, and gauges counted in the database."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from modnorm.errors import UnavailableError
from modnorm.services.aggregator.experiments.lifecycle import Change
from modnorm.services.aggregator.lab_status import LabCountStore
from modnorm.services.aggregator.storage.tables import (
    IN_SETUP,
    TERMINAL,
    ExperimentState,
    FailureKind,
    Split,
)
from modnorm.services.common.metrics import WORK_BUCKETS

PHASES = ("switch", "generate", "score")
EXPERIMENT_BUCKETS = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)
"""Upper bounds in seconds: from a minute on a laptop to a week on a cluster."""


class AggregatorMetrics:
    """Metrics of one aggregator; counters begin at 0 with its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=WORK_BUCKETS)
        self.lease_expiries = counter(
            "modnorm_lease_expiries", "Leases that expired because their worker sent no heartbeat."
        )
        self.broker_up = gauge("modnorm_broker_up", "1 when the last use of the broker succeeded.")
        self.deviating_workers = gauge(
            "modnorm_workers_deviating",
            "Workers whose base recently answered unlike others of the same environment.",
        )
        self._scored = counter("modnorm_candidates_scored", "Results stored.", ("split",))
        self._failures = counter("modnorm_attempts_failed", "Attempts that failed.", ("kind",))
        self._phases = histogram(
            "modnorm_candidate_phase_seconds",
            "Seconds of each phase of a candidate, as reported by workers.",
            ("phase",),
        )
        self._steps = histogram(
            "modnorm_step_seconds",
            "Seconds of the step that leaves a state, including calls to other services.",
            ("state",),
        )
        self._experiments = histogram(
            "modnorm_experiment_seconds",
            "Seconds from creation to end, of experiments that ended with the end of a job.",
            ("state",),
            buckets=EXPERIMENT_BUCKETS,
        )
        # Every series begins at 0, since a rate needs a first value.
        for kind in FailureKind:
            self._failures.labels(kind)
        for state in IN_SETUP:
            self._steps.labels(state)
        for state in TERMINAL:
            self._experiments.labels(state)
        # Stored, since the lookup of a time series by labels costs more than its update.
        self._scored_of = {split: self._scored.labels(split) for split in Split}
        self._seconds_of = [self._phases.labels(phase) for phase in PHASES]

    def reported(self, change: Change) -> None:
        """Count a result unless it was stored before."""
        job = change.job
        if job is None:
            return
        self._scored_of[job.split].inc()
        seconds = (job.switch_seconds, job.generate_seconds, job.score_seconds)
        for phase, value in zip(self._seconds_of, seconds, strict=True):
            phase.observe(value)
        self._ended(change)

    def failed(self, change: Change) -> None:
        """Count a failed attempt unless it was counted before."""
        if change.kind is not None:
            self._failures.labels(change.kind).inc()
            self._ended(change)

    def expired(self, change: Change) -> None:
        """Count an expired lease, and a failed attempt unless its job waited for the engine."""
        self.lease_expiries.inc(change.kind is not FailureKind.RELEASED)
        self.failed(change)

    def step(self, state: ExperimentState) -> AbstractContextManager[object]:
        """Measure the step that leaves a state, whether it succeeds or not."""
        return self._steps.labels(state).time()

    def _ended(self, change: Change) -> None:
        experiment = change.experiment
        if change.ended and experiment and experiment.end_time is not None:
            seconds = experiment.end_time - experiment.create_time
            self._experiments.labels(experiment.state).observe(seconds)


class LabCollector(Collector):
    """Counts jobs and experiments in the database at each scrape."""

    def __init__(self, counts: LabCountStore) -> None:
        self._counts = counts

    @override
    def collect(self) -> Iterable[Metric]:
        """Yield the counts and whether the database answers; only the latter if it does not."""
        up = GaugeMetricFamily("modnorm_database_up", "1 when the database answers.")
        try:
            experiments, open_jobs = self._counts.count()
        except UnavailableError:
            up.add_metric((), 0)
            yield up
            return
        up.add_metric((), 1)
        yield up
        jobs = GaugeMetricFamily(
            "modnorm_open_jobs", "Pending and leased jobs.", labels=("state", "split")
        )
        for labels, count in sorted(open_jobs.items()):
            jobs.add_metric(labels, count)
        yield jobs
        states = GaugeMetricFamily(
            "modnorm_experiments", "Experiments by state.", labels=("state",)
        )
        for state, count in experiments.items():
            states.add_metric((state,), count)
        yield states
