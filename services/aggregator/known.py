"""What reports are checked against, kept by content: read and parsed once for many reports."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlmodel import Session

from modnorm.geometry.scale_map import ScaleMap
from services.aggregator.artifacts import load_rows, load_text
from services.aggregator.lifecycle import spec_of, task_of
from services.aggregator.states import ArtifactKind
from services.aggregator.tables import Experiment

if TYPE_CHECKING:
    from modnorm.tasks import Row, Task

_EXPERIMENTS = 64
_SCALE_MAPS = 64
_ROWS = 4

ValueT = TypeVar("ValueT")


class Known:
    """Things that never change under their names; used by several threads."""

    def __init__(self) -> None:
        self._experiments: _Recent[Experiment] = _Recent(_EXPERIMENTS)
        self._active: _Recent[int] = _Recent(_SCALE_MAPS)
        self._tasks: _Recent[Task] = _Recent(_ROWS)
        self._rows: _Recent[tuple[Row, ...]] = _Recent(_ROWS)

    def experiment(self, session: Session, experiment_id: str) -> Experiment:
        """Return an experiment that has jobs, as it was at some time since it has some.

        Only what jobs are made of may be read: that changes no more.
        """

        def load() -> Experiment:
            found = session.get_one(Experiment, experiment_id)
            session.expunge(found)  # a rollback would empty it
            return found

        return self._experiments.find(experiment_id, load)

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
        spec = spec_of(experiment).task
        key = (spec.name, spec.declaration, experiment.scorer)
        return self._tasks.find(key, lambda: task_of(experiment))


class _Recent(Generic[ValueT]):
    """The values that were wanted last, at most `size` of them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, ValueT] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable, load: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key; two threads may load it at the same time."""
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
