"""Metrics of a worker and of its GPUs."""

import logging
import warnings
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from modnorm.search.answers import Answer

logger = logging.getLogger(__name__)


class JobOutcome(StrEnum):
    """How a claimed job ended at this worker."""

    REPORTED = "reported"
    FAILED = "failed"
    RELEASED = "released"
    """The worker stopped or its engine failed, and returned the job without an attempt."""
    UNFIT = "unfit"
    """The worker lacks a sandbox, or a task's package in the right version."""
    PASSED_ON = "passed_on"
    """The worker stops before it begins the job."""
    DROPPED = "dropped"
    """The lease was lost, or the experiment no longer needs the job."""


class EvaluatorMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self._jobs = counter("modnorm_evaluator_jobs", "Claimed jobs that ended.", ("outcome",))
        for outcome in JobOutcome:
            self._jobs.labels(outcome)
        self._tokens = counter("modnorm_evaluator_tokens", "Tokens generated in results.")
        self.busy = Gauge("modnorm_evaluator_busy", "1 while a job runs.", registry=registry)
        self.model_loads = counter(
            "modnorm_evaluator_model_loads", "Models loaded into an engine."
        )
        self.engine_restarts = counter(
            "modnorm_evaluator_engine_restarts",
            "Engines closed after a failure; the next job loads one again.",
        )
        registry.register(GpuCollector())

    def ended(self, outcome: JobOutcome) -> None:
        self._jobs.labels(outcome).inc()

    def scored(self, answers: Iterable[Answer]) -> None:
        self._tokens.inc(sum(answer.tokens for answer in answers))


class GpuCollector(Collector):
    """Memory and use of the visible GPUs, by all processes, whenever metrics are read.

    PyTorch reads them through NVML without starting CUDA.
    """

    _has_warned = False

    @override
    def collect(self) -> Iterable[Metric]:
        """Return memory and utilization of each GPU that can be read."""
        memory = GaugeMetricFamily(
            "modnorm_gpu_memory_used_bytes", "GPU memory in use.", labels=("device",)
        )
        use = GaugeMetricFamily(
            "modnorm_gpu_utilization_ratio",
            "Share of the time in which the GPU was busy.",
            labels=("device",),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for device in range(torch.cuda.device_count()):
                self._add(memory, device, torch.cuda.device_memory_used)
                self._add(use, device, lambda index: torch.cuda.utilization(index) / 100)
        return memory, use

    def _add(self, family: GaugeMetricFamily, device: int, read: Callable[[int], float]) -> None:
        try:
            family.add_metric((str(device),), read(device))
        except Exception as error:  # noqa: BLE001 - NVML's own errors; other metrics stay readable
            if not self._has_warned:
                logger.warning("no GPU metrics: %s", error)
            self._has_warned = True
