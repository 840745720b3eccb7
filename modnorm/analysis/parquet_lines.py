"""Lines of a Parquet file: written atomically, and read by conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset, parquet

from modnorm.analysis.run_files import REWRITE, unreadable
from modnorm.arguments import require_name, require_several
from modnorm.errors import InvalidInputError
from modnorm.files import replaced_file

if TYPE_CHECKING:
    import pandas as pd

GROUP_LINES = 5_000
"""Lines of one row group: a reader decodes whole row groups, a writer holds one."""


def check_columns(path: Path, schema: pa.Schema) -> None:
    """Check that a file has the columns of a schema.

    Raises:
        InvalidInputError: there is no such file, or it has other columns.
    """
    try:
        found = parquet.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    if not found.equals(schema):
        raise InvalidInputError(
            f"{path} has other columns than this version writes", field="run", remedy=REWRITE
        )


def write_lines(path: Path, schema: pa.Schema, lines: Iterable[Mapping[str, object]]) -> None:
    """Write a file atomically: a reader sees the old file or the new one.

    Raises:
        OSError: it cannot be written.
    """
    lines = iter(lines)
    with (
        replaced_file(path) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while group := list(islice(lines, GROUP_LINES)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def read_lines(
    path: Path,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    conditions: Sequence[dataset.Expression] = (),
) -> Iterator[dict[str, Any]]:
    """Return an iterator over the lines that meet all conditions, in the order of the file.

    Row groups without such lines are not decoded.

    Raises:
        InvalidInputError: there is no such file, or it has other columns.
    """
    check_columns(path, schema)
    chosen = reduce(and_, conditions) if conditions else None
    batches = dataset.dataset(path).to_batches(columns=columns, filter=chosen)
    return (line for batch in batches for line in batch.to_pylist())


def equal(**values: int | str | None) -> list[dataset.Expression]:
    """Return the conditions that columns equal values; None sets no condition."""
    given = {name: value for name, value in values.items() if value is not None}
    return [dataset.field(name) == value for name, value in given.items()]


def read_frame(path: Path, schema: pa.Schema, columns: Sequence[str] | None) -> "pd.DataFrame":
    """Return a file as a table of pandas.

    Raises:
        InvalidInputError: there is no such file, or it has other columns than the schema or than
            the caller asks for.
    """
    check_columns(path, schema)
    if columns is not None:
        require_several(columns, "columns", "columns")
        columns = list(columns)  # pyarrow takes no other sequence
        for column in columns:
            require_name(column, schema.names, "columns", "column")
    frame: pd.DataFrame = parquet.read_table(path, columns=columns).to_pandas()
    return frame
