"""Cache of parsed inputs that reports are checked against: scale maps, rows and tasks."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlmodel import Session

from modnorm.geometry.scale_map import ScaleMap
from services.aggregator.storage.states import ArtifactKind
from services.aggregator.storage.stored_artifacts import load_rows, load_text
from services.aggregator.storage.tables import Experiment

if TYPE_CHECKING:
    from modnorm.tasks import Row, Task

_SCALE_MAPS = 64
_ROWS = 4

ValueT = TypeVar("ValueT")


class ReportCache:
    """Inputs by digest, which never change; used by several threads."""

    def __init__(self) -> None:
        self._active: _Recent[int] = _Recent(_SCALE_MAPS)
        self._tasks: _Recent[Task] = _Recent(_ROWS)
        self._rows: _Recent[tuple[Row, ...]] = _Recent(_ROWS)

    def active_tensors(self, session: Session, digest: str) -> int:
        """Return how many tensors a scale map perturbs.

        Raises:
            NotFoundError: it is not stored.
        """

        def load() -> int:
            text = load_text(session, ArtifactKind.SCALE_MAP, digest)
            return len(ScaleMap.from_json(text).active)

        return self._active.find(digest, load)

    def metric(
        self, session: Session, experiment: Experiment, digest: str, correct: Sequence[bool]
    ) -> float:
        """Return the metric of one candidate alone.

        Args:
            session: The transaction.
            experiment: The experiment.
            digest: Which rows were answered.
            correct: Whether each answer is right, in row order.

        Raises:
            PreconditionError: this version has no such scorer.
        """
        rows = self._rows.find(digest, lambda: load_rows(session, digest))
        return self.task(experiment).metric(rows, correct)

    def task(self, experiment: Experiment) -> "Task":
        """Return the task of an experiment.

        Raises:
            PreconditionError: this version has no such scorer.
        """
        spec = experiment.spec.task
        key = (spec.name, spec.declaration, experiment.scorer)
        return self._tasks.find(key, experiment.task)


class _Recent(Generic[ValueT]):
    """The most recently used values, at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, ValueT] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable, load: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key. Two threads may load it at the same time."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = load()
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        return value
