"""Whether rows are those of a named split."""

from collections.abc import Sequence

from modnorm.errors import InvalidInputError
from modnorm.tasks.catalogue import Dataset
from modnorm.tasks.manifest import SplitRecord, first_change
from modnorm.tasks.registry import get_task
from modnorm.tasks.row_files import RawRow
from modnorm.tasks.rows import rows_digest


def verify(  # noqa: PLR0913 - half of them by keyword
    data: Dataset,
    name: str,
    rows: Sequence[RawRow],
    *,
    source: str,
    record: SplitRecord | None = None,
    field: str,
) -> str:
    """Return the digest of rows that are those of a split.

    Args:
        data: The task's data.
        name: The split, `selection`.
        rows: Raw rows with their places.
        source: What the rows were read from, for errors.
        record: What a manifest says of them: it stands in for a digest that the catalogue
            lacks, and tells which row was changed.
        field: Field for errors.

    Raises:
        InvalidInputError: they are not; names the row where that can be told.
    """
    split = data.splits[name]
    digest = _digest(data, rows, source, field)
    expected = split.digest or (record.digest if record else None)
    if len(rows) != split.rows:
        fault = f"{len(rows)} rows where {data.task}/{name} has {split.rows}"
    elif expected not in {None, digest}:
        fault = f"rows with the digest {digest} where {data.task}/{name} has {expected}"
    else:
        return digest
    place = first_change(record, rows) if record else None
    where = f"; the first that was changed is {place}" if place else ""
    raise InvalidInputError(f"{source} gives {fault}{where}", field=field)


def _digest(data: Dataset, rows: Sequence[RawRow], source: str, field: str) -> str:
    parse, parsed = get_task(data.task).parse, []
    for place, row in rows:
        try:
            parsed.append(parse(row))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{source}, {place}, column {error.field!r}: {error.message}", field=field
            ) from error
    return rows_digest(parsed)
