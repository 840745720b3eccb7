"""Rows of a task, loaded from where a spec says they are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from modnorm.errors import InvalidInputError
from modnorm.spec import DataSpec
from modnorm.tasks.protocol import Row, Task
from modnorm.tasks.row_files import Raw, RawRow
from modnorm.tasks.rows import encode_rows, rows_digest
from modnorm.tasks.sources import open_source
from modnorm.tasks.task_errors import attribute_to_task

__all__ = ["LoadedRows", "encode_rows", "load_data", "load_rows", "parse_row", "rows_digest"]

_SHOWN = 200
"""Characters of a row's column names that errors repeat."""


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """The rows that a spec names."""

    rows: tuple[Row, ...]
    revision: str | None
    """Commit of the Hugging Face dataset whose rows they are; None where there is none."""
    places: tuple[str, ...]
    """Where each row stands in its source, for error messages: `line 17`."""


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
        task: Gives the schema that each row is checked against.
        spec: Source, offset and limit.
        field: Spec path for errors, `task.selection` for instance.
        roots: Folders that files must lie under; any file when None.
        folders: Where named splits are looked for before the hub; `open_source` says where when
            None.

    Raises:
        InvalidInputError: the source is missing, malformed (the message names the row) or has
            fewer rows than asked for.
        PreconditionError: a Hugging Face dataset is named, but `datasets` is not installed; or a
            named split is on no hub and not on this machine.
        UnavailableError: a Hugging Face dataset cannot be reached.
    """
    opened = open_source(spec, field=field, roots=roots, folders=folders)
    stop = None if spec.limit is None else spec.offset + spec.limit
    found = tuple(_parse(task, islice(opened.rows, spec.offset, stop), spec.source, field))
    _check_count(found, spec, field)
    places, rows = zip(*found, strict=True)
    return LoadedRows(rows, opened.revision, places)


def load_rows(
    task: Task,
    spec: DataSpec,
    *,
    field: str,
    roots: Sequence[Path] | None = None,
    folders: Sequence[Path] | None = None,
) -> tuple[Row, ...]:
    """Return the rows alone of `load_data`."""
    return load_data(task, spec, field=field, roots=roots, folders=folders).rows


def _parse(
    task: Task, raw: Iterable[RawRow], source: str, field: str
) -> Iterator[tuple[str, Row]]:
    for place, columns in raw:
        yield place, parse_row(task, columns, f"{source}, {place}", field=field)


def parse_row(task: Task, columns: Raw, place: str, *, field: str) -> Row:
    """Return a row as its task keeps it.

    Args:
        task: Gives the schema.
        columns: The row as it was read.
        place: Source and line, for errors.
        field: Spec path for errors.

    Raises:
        InvalidInputError: it breaks the schema; names the place and the column.
    """
    with attribute_to_task(task, place, InvalidInputError):
        try:
            return task.parse(columns)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{place}, column {error.field!r}: {error.message}",
                field=field,
                remedy=error.remedy or _lacking(columns, error.field),
            ) from error


def _lacking(columns: Raw, column: str | None) -> str | None:
    """Say which columns a row has that lacks one; None where it does not."""
    if column is None or column in columns:
        return None
    names = ", ".join(map(repr, columns)) or "none"
    shown = names if len(names) <= _SHOWN else f"{names[:_SHOWN]}..."
    return f"the row has no such column, only {shown}"


def _check_count(rows: Sequence[object], spec: DataSpec, field: str) -> None:
    if not rows:
        passed = f" after the first {spec.offset}" if spec.offset else ""
        raise InvalidInputError(f"{spec.source} has no rows{passed}", field=field)
    if spec.limit is not None and len(rows) < spec.limit:
        raise InvalidInputError(
            f"{spec.source} has {len(rows)} rows from row {spec.offset} on, fewer than asked for",
            field=f"{field}.limit",
            remedy=f"ask for at most {len(rows)}",
        )
