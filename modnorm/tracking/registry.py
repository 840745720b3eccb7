"""Experiment trackers by name."""

from collections.abc import Callable
from importlib.util import find_spec
from pkgutil import resolve_name

from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.hints import one_of
from modnorm.tracking.tracker import Tracker

StartTracker = Callable[[], Tracker]
"""Makes a tracker that has no run yet."""

_PLACES = {
    "mlflow": "modnorm.tracking.mlflow_tracker:MlflowTracker",
    "wandb": "modnorm.tracking.wandb_tracker:WandbTracker",
}
TRACKERS = tuple(_PLACES)
"""Names of the trackers; each is the name of its library and of its extra too."""


def load_tracker(name: str) -> StartTracker:
    """Import a tracker and check that it can be used here.

    Raises:
        InvalidInputError: there is no such tracker.
        PreconditionError: its extra is not installed, or it needs a login.
    """
    _check_installed(name)
    kind = resolve_name(_PLACES[name])
    kind.check()
    start: StartTracker = kind
    return start


def _check_installed(name: str) -> None:
    if name not in _PLACES:
        raise InvalidInputError(
            f"there is no tracker {name!r}", field="track", remedy=one_of(name, TRACKERS)
        )
    spec = find_spec(name)
    # A folder of this name in the working directory, such as wandb's own, is no library.
    if spec is None or spec.origin is None:
        raise PreconditionError(
            f"{name} is not installed", field="track", remedy=f"pip install 'modnorm[{name}]'"
        )
