"""Development rows, which choose a setting, against the held-out rows, which test it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.radius.artifact_schema import GridDocument
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.spec_checks import task_of
from modnorm.tasks.overlap import shared_prompts, shared_range
from modnorm.tasks.protocol import Task
from modnorm.tasks.row_loading import LoadedRows, load_data
from modnorm.tasks.rows import rows_digest
from modnorm.tasks.sources import is_dataset


def check_development_rows(
    spec: ExperimentSpec, rows: DataSpec, *, folders: Sequence[Path] | None = None
) -> None:
    """Refuse development rows of which one is among the spec's held-out rows.

    Rows are the same where their prompts are. Datasets of the Hugging Face Hub and rows that are
    not on this machine are compared by name, offset and limit.

    Raises:
        InvalidInputError: says how many they are, and which is the first.
    """
    loaded = _load(task_of(spec), spec, rows, folders)
    shared = _by_name(rows, spec.task.heldout) if loaded is None else loaded.shared()
    if shared is not None:
        raise InvalidInputError(
            f"{shared}; the radius chosen here is tested on those",
            field="heldout",
            remedy="name other rows with --heldout, or another offset or limit",
        )


def check_radius_rows(
    spec: ExperimentSpec, grid: GridDocument, *, folders: Sequence[Path] | None = None
) -> None:
    """Refuse the radius of a grid that was chosen on some of the spec's held-out rows.

    What this machine does not have, and files that changed since, say nothing here: services
    compare the digests of both sets.

    Raises:
        InvalidInputError: says how many they are, and which is the first.
    """
    shared = _known_shared(spec, grid, folders)
    if shared is not None:
        raise InvalidInputError(
            f"the radius artifact was chosen on rows that test it: {shared}",
            field="method.radius",
            remedy="name other rows in task.heldout, or choose the radius again with other rows "
            "in `modnorm tune --heldout`: rows that chose the radius are no test",
        )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Development and held-out rows that are on this machine."""

    task: Task
    names: tuple[str, str]
    """Sources of both."""
    development: LoadedRows
    heldout: LoadedRows

    def shared(self) -> str | None:
        """Describe the development rows that are held-out rows; None if there are none."""
        found = shared_prompts(self.task, self.development.rows, self.heldout.rows)
        if not found:
            return None
        (index, other), (name, other_name) = found[0], self.names
        place, other_place = self.development.places[index], self.heldout.places[other]
        return (
            f"{len(found)} of {len(self.development.rows)} development rows have the prompts of "
            f"rows of task.heldout: first row {index} ({name}, {place}), that of row {other} "
            f"({other_name}, {other_place})"
        )


def _known_shared(
    spec: ExperimentSpec, grid: GridDocument, folders: Sequence[Path] | None
) -> str | None:
    """Say which rows of a grid are held-out rows for certain."""
    rows, digest = grid.settings.development, grid.settings.development_digest
    if grid.task != spec.task.name:
        return None
    if is_dataset(rows.source):
        return _by_name(rows, spec.task.heldout)
    try:
        task = task_of(spec)
    except InvalidInputError:  # labs may have tasks that this machine lacks
        return None
    loaded = _load(task, spec, rows, folders)
    if loaded is None or rows_digest(loaded.development.rows) != digest:
        return None
    return loaded.shared()


def _load(
    task: Task, spec: ExperimentSpec, rows: DataSpec, folders: Sequence[Path] | None
) -> _Loaded | None:
    """Load development and held-out rows; None if one of them is not on this machine."""
    tested = spec.task.heldout
    if is_dataset(rows.source) or is_dataset(tested.source):
        return None
    try:
        return _Loaded(
            task,
            (rows.source, tested.source),
            load_data(task, rows, field="heldout", folders=folders),
            load_data(task, tested, field="task.heldout", folders=folders),
        )
    except ModnormError:
        return None


def _by_name(rows: DataSpec, tested: DataSpec) -> str | None:
    """Describe the rows of a source that both name; None if they share none."""
    found = shared_range(rows, tested)
    if found is None:
        return None
    count = "all" if found.stop is None else found.stop - found.start
    return (
        f"development rows are rows of task.heldout: {count} of {rows.source} from row "
        f"{found.start} on"
    )
