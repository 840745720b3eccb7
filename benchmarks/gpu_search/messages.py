"""What is said between the driver of a search and its contenders."""

from dataclasses import dataclass

from benchmarks.gpu_search.stopping import Place
from benchmarks.gpu_search.workload import Workload

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


@dataclass(frozen=True)
class Turn:
    """A candidate to evaluate."""

    candidate: int
    stops: bool = False
    """Whether it may be stopped early."""
    floor: Place | None = None
    """Place of the K-th best complete candidate; None while there are fewer."""


@dataclass(frozen=True)
class News:
    """A floor that has risen while a candidate is being evaluated; not answered."""

    floor: Place
