"""Messages between the driver of a search and its contenders."""

from dataclasses import dataclass

from benchmarks.gpu_search.workload import Workload
from modnorm.search.stopping import Threshold

PARKED_LIMIT = 12
"""Most parked candidates per engine, as an evaluator's default."""
WARM_UP = 8
"""Tokens of each answer of the warm-up candidate."""


@dataclass(frozen=True)
class ContenderSettings:
    """Settings of a contender."""

    model: str
    workload: Workload
    population: int
    share: float = 0.9
    """Share of the GPU's memory."""
    cache_bytes: int | None = None
    """Bytes of keys and values; None lets vLLM use the rest of its share."""
    texts: str = ""
    """File of texts that the model says; empty for its own."""
    drafts: bool = False
    """Whether engines draft from the population."""


@dataclass(frozen=True)
class EvaluateCandidate:
    """A candidate to evaluate."""

    candidate: int
    stops: bool = False
    """Whether it may be parked, and stopped early."""
    threshold: Threshold | None = None
    """Threshold that it must be able to reach."""


@dataclass(frozen=True)
class Free:
    """An engine is free; it has sent the outcomes of its candidates before."""

    parked: int = 0
    """Number of parked candidates."""


@dataclass(frozen=True)
class ResumeParked:
    """Request to finish the best parked candidate."""

    threshold: Threshold | None


@dataclass(frozen=True)
class ThresholdUpdate:
    """A raised threshold during the evaluation of a candidate; it gets no reply."""

    threshold: Threshold | None
