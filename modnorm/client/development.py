"""Development rows, which choose a setting, against the held-out rows, which test it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.errors import InvalidInputError, ModnormError
from modnorm.spec import DataSpec, ExperimentSpec
from modnorm.spec_checks import task_of
from modnorm.tasks.columns import prompt_digests, rows_digest
from modnorm.tasks.protocol import Task
from modnorm.tasks.row_loading import LoadedRows, load_data
from modnorm.tasks.task_errors import render_prompts, shared_prompts, shared_range


def check_development_rows(
    spec: ExperimentSpec, rows: DataSpec, *, folders: Sequence[Path] | None = None
) -> None:
    """Refuse development rows of which one is among the spec's held-out rows.

    Rows are the same where their prompts are. Rows that cannot be loaded here are compared by
    name, offset and limit.
    """
    loaded = _load(task_of(spec), spec, rows, folders)
    shared = _by_name(rows, spec.task.heldout) if loaded is None else loaded.shared()
    if shared is not None:
        raise InvalidInputError(
            f"{shared}; the radius chosen here is tested on those",
            field="heldout",
            remedy="name other rows with --heldout, or another offset or limit",
        )


def development_prompts(
    spec: ExperimentSpec, digest: str, *, folders: Sequence[Path] | None = None
) -> tuple[str, ...]:
    """Return the digests of the prompts of a trial's held-out rows, which are development rows."""
    try:
        task = task_of(spec)
        rows = load_data(task, spec.task.heldout, field="heldout", folders=folders).rows
        if rows_digest(rows) != digest:
            return ()
        return prompt_digests(render_prompts(task, rows, "row"))
    except ModnormError:
        return ()


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


def _load(
    task: Task, spec: ExperimentSpec, rows: DataSpec, folders: Sequence[Path] | None
) -> _Loaded | None:
    """Load development and held-out rows; None if one of them cannot be loaded."""
    tested = spec.task.heldout
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
