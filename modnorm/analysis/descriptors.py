"""`descriptors.parquet`: the descriptors that define the weights of a run's candidates."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from modnorm.analysis.parquet_lines import equal, read_lines, write_lines
from modnorm.perturbation.descriptor import Descriptor

DESCRIPTORS = "descriptors.parquet"
"""Name of the file in a run directory."""

DESCRIPTOR_SCHEMA = pa.schema(
    [
        pa.field("candidate", pa.int32(), nullable=False),
        pa.field("noise", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("radius", pa.float64(), nullable=False),
        pa.field("scale_map", pa.string(), nullable=False),
        pa.field("coefficients", pa.list_(pa.float32())),
        pa.field("lineage", pa.string(), nullable=False),
    ]
)
"""`candidate` as in `answers.parquet`; the other columns are fields of `Descriptor`."""


def write_descriptors(directory: Path, descriptors: Iterable[tuple[int, Descriptor]]) -> None:
    """Write `descriptors.parquet`.

    Args:
        directory: The run directory.
        descriptors: Index and descriptor of each candidate.

    Raises:
        OSError: it cannot be written.
    """
    names = DESCRIPTOR_SCHEMA.names[1:]
    lines = (
        {"candidate": index, **{name: getattr(each, name) for name in names}}
        for index, each in descriptors
    )
    write_lines(directory / DESCRIPTORS, DESCRIPTOR_SCHEMA, lines)


def read_descriptors(
    directory: Path, candidate: int | None = None
) -> Iterator[tuple[int, Descriptor]]:
    """Yield index and descriptor of the candidates of a run directory, in order.

    Args:
        directory: The run directory.
        candidate: Index of the only candidate to read; all when absent.

    Raises:
        InvalidInputError: the directory has no `descriptors.parquet` of this version.
    """
    path, conditions = directory / DESCRIPTORS, equal(candidate=candidate)
    for line in read_lines(path, DESCRIPTOR_SCHEMA, conditions=conditions):
        index, coefficients = line.pop("candidate"), line.pop("coefficients")
        resolved = None if coefficients is None else tuple(coefficients)
        yield index, Descriptor(**line, coefficients=resolved)
