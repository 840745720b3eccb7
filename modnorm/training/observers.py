"""Functions that observe and stop a training."""

from collections.abc import Callable

from modnorm.training.job import TrainingProgress

OnProgress = Callable[[TrainingProgress], None]
"""Called after every step."""
IsCancelled = Callable[[], bool]
"""Whether the training shall stop."""


def ignore_progress(_progress: TrainingProgress, /) -> None:
    """Do nothing with the progress."""


def never() -> bool:
    """Return that nothing was cancelled."""
    return False
