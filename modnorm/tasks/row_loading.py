"""Loads the rows that a spec names, in a task's schema."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks.columns import quoted
from modnorm.tasks.protocol import Row, Task
from modnorm.tasks.row_files import Raw, RawRow
from modnorm.tasks.sources import open_source
from modnorm.tasks.task_errors import attribute_to_task


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """The rows that a spec names."""

    rows: tuple[Row, ...]
    revision: str | None
    """Commit of the rows' Hugging Face dataset; None for other sources."""
    places: tuple[str, ...]
    """Place of each row in its source, for error messages: `line 17`."""


def load_data(
    task: Task,
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None = None,
    folders: Sequence[Path] | None = None,
) -> LoadedRows:
    """Load and check the rows that a spec names, in file order.

    Args:
        task: Defines the schema of the rows.
        spec: Source, offset and limit.
        field: Spec path for errors, for instance `task.selection`.
        roots: Folders that must contain the files; any file is allowed when None.
        folders: Folders that are searched for named splits before the hub; the default of
            `open_source` when None.

    Raises:
        InvalidInputError: the source is missing, malformed (the message names the row) or has
            fewer rows than requested.
        PreconditionError: a Hugging Face dataset needs the package `datasets`, or a named split is
            neither public nor on this machine.
        UnavailableError: a Hugging Face dataset cannot be reached.
    """
    opened = open_source(spec, field=field, roots=roots, folders=folders)
    stop = None if spec.limit is None else spec.offset + spec.limit
    placed = tuple(_parse(task, islice(opened.rows, spec.offset, stop), spec.source, field))
    _check_count(placed, spec, field)
    places, rows = zip(*placed, strict=True)
    return LoadedRows(rows, opened.revision, places)


def load_rows(
    task: Task,
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None = None,
    folders: Sequence[Path] | None = None,
) -> tuple[Row, ...]:
    """Return the rows of `load_data` only."""
    return load_data(task, spec, field=field, roots=roots, folders=folders).rows


def _parse(
    task: Task, raw: Iterable[RawRow], source: str, field: str
) -> Iterator[tuple[str, Row]]:
    for place, columns in raw:
        yield place, parse_row(task, columns, f"{source}, {place}", field=field)


def parse_row(task: Task, columns: Raw, place: str, *, field: str) -> Row:
    """Return a raw row in its task's schema.

    Raises:
        InvalidInputError: the row breaks the schema; the message names the place and the column.
    """
    return parse_in_place(task, task.parse, columns, place, field=field)


def parse_in_place(
    task: Task, parse: Callable[[Raw], Row], columns: Raw, place: str, *, field: str
) -> Row:
    """Return a raw row as `parse`, a method of the task, returns it; see `parse_row`."""
    with attribute_to_task(task, place, InvalidInputError):
        try:
            return parse(columns)
        except InvalidInputError as error:
            raise _placed(error, columns, place, field) from error


def _placed(error: InvalidInputError, columns: Raw, place: str, field: str) -> InvalidInputError:
    """Return the error of a row with its place; a column that the row lacks is missing."""
    column = error.field
    if column is None or column in columns:
        message = f"{place}, column {column!r}: {error.message}"
        return InvalidInputError(message, field=field, remedy=error.remedy)
    there = f"the row has only {quoted(columns)}" if columns else "the row has no columns"
    return InvalidInputError(
        f"{place}, column {column!r}: is missing; {error.message}",
        field=field,
        remedy=error.remedy or there,
    )


def _check_count(rows: Sequence[object], spec: DataSpec, field: str) -> None:
    if not rows:
        passed = f" after the first {spec.offset}" if spec.offset else ""
        raise InvalidInputError(f"{spec.source} has no rows{passed}", field=field)
    if spec.limit is not None and len(rows) < spec.limit:
        raise InvalidInputError(
            f"{spec.source} has {len(rows)} rows after the first {spec.offset}, below the limit",
            field=f"{field}.limit",
            remedy=f"at most {len(rows)}",
        )
