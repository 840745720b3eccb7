"""Messages between the driver of a search and its contenders."""

from dataclasses import dataclass

from benchmarks.gpu_search.variants import USUAL
from benchmarks.gpu_search.workload import Workload
from modnorm.search.stopping import Bar

RESTING = 12
"""Most parked candidates per engine, as an evaluator's default."""
WARM_UP = 8
"""Tokens of each answer of the warm-up candidate."""


@dataclass(frozen=True)
class Settings:
    """Settings of a contender."""

    model: str
    workload: Workload
    population: int
    share: float = 0.9
    """Share of the GPU's memory."""
    cache_bytes: int | None = None
    """Bytes of keys and values; None lets vLLM use the rest of its share."""
    variant: str = USUAL
    """Variant of the project's engine."""


@dataclass(frozen=True)
class Turn:
    """A candidate to evaluate."""

    candidate: int
    stops: bool = False
    """Whether it may be stopped early."""
    bar: Bar | None = None
    """Threshold that it must be able to reach."""
    rests: bool = False
    """Whether it may be parked."""


@dataclass(frozen=True)
class Free:
    """An engine is free; it has sent the outcomes of its candidates before."""

    resting: int = 0
    """Number of parked candidates."""


@dataclass(frozen=True)
class GoOn:
    """Request to finish the best parked candidate."""

    bar: Bar | None


@dataclass(frozen=True)
class News:
    """A raised threshold during the evaluation of a candidate; it gets no reply."""

    bar: Bar | None
