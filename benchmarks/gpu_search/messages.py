"""What is said between the driver of a search and its contenders."""

from dataclasses import dataclass

from benchmarks.gpu_search.variants import USUAL
from benchmarks.gpu_search.workload import Workload
from modnorm.search.stopping import Threshold

RESTING = 12
"""Candidates that rest at once in one engine: what an evaluator has by default."""
WARM_UP = 8
"""Tokens of each answer of the candidate that is not counted."""


@dataclass(frozen=True)
class Settings:
    """What a contender is started with."""

    model: str
    workload: Workload
    population: int
    share: float = 0.9
    """Part of the GPU's memory."""
    cache_bytes: int | None = None
    """Bytes of keys and values; what vLLM finds free in its part when None."""
    variant: str = USUAL
    """How the project's engine is started."""


@dataclass(frozen=True)
class Turn:
    """A candidate to evaluate."""

    candidate: int
    stops: bool = False
    """Whether it may be stopped early."""
    bar: Threshold | None = None
    """What it must still be able to pass."""
    rests: bool = False
    """Whether it may rest, for others to begin."""


@dataclass(frozen=True)
class Free:
    """An engine has done what it was told; what came of candidates was said before."""

    resting: int = 0
    """Candidates that rest in it."""


@dataclass(frozen=True)
class GoOn:
    """Let the best of the candidates that rest go on to its end."""

    bar: Threshold | None


@dataclass(frozen=True)
class News:
    """A bar that has risen while the candidate is being evaluated; not answered."""

    bar: Threshold | None
