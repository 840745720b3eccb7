"""Verifies that rows are those of a named split."""

from collections.abc import Sequence

from modnorm.errors import InvalidInputError
from modnorm.tasks.catalogue import Dataset
from modnorm.tasks.manifest import SplitRecord, first_change
from modnorm.tasks.registry import get_task
from modnorm.tasks.row_files import RawRow
from modnorm.tasks.rows import rows_digest


def verify(  # noqa: PLR0913 - half of them are keyword-only
    data: Dataset,
    name: str,
    rows: Sequence[RawRow],
    *,
    source: str,
    record: SplitRecord | None = None,
    field: str,
) -> str:
    """Verify the rows of a split and return their digest.

    Args:
        data: The task's data set.
        name: The split, for instance `selection`.
        rows: Raw rows with their places.
        source: The rows' source, for errors.
        record: The split's entry in a manifest. It provides a digest that the catalogue lacks, and
            identifies a changed row.
        field: Field for errors.

    Raises:
        InvalidInputError: the rows differ; the message names the changed row if it is known.
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
    change = f"; the first changed row is {place}" if place else ""
    raise InvalidInputError(f"{source} gives {fault}{change}", field=field)


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
