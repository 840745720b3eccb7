"""Selection of a run's reported state (paper, app. E.1)."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DevelopmentResult:
    """Figures of a state on the development rows."""

    step: int
    """Number of updates that lead to the state."""
    accuracy: float
    reward: float


def best_state(results: Sequence[DevelopmentResult]) -> DevelopmentResult:
    """Return the state with the best accuracy, then mean reward, then the fewest steps."""
    return max(results, key=lambda one: (one.accuracy, one.reward, -one.step))
