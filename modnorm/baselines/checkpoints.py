"""Which state of a run is reported (paper, app. E.1)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevelopmentResult:
    """What a state answers on the development rows."""

    step: int
    """Updates that it is made of."""
    accuracy: float
    reward: float


def best_state(results: Sequence[DevelopmentResult]) -> DevelopmentResult:
    """Return the state with the best accuracy, then mean reward, then the fewest steps."""
    return max(results, key=lambda one: (one.accuracy, one.reward, -one.step))
