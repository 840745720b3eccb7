"""The Parquet files of a run directory: written atomically, and read by conditions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import reduce
from itertools import groupby, islice
from operator import and_, itemgetter
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import pyarrow as pa
from pyarrow import dataset, parquet

from modnorm.analysis.run_files import ANSWERS, DESCRIPTORS, REWRITE, VOTES, unreadable
from modnorm.analysis.votes import VoteRecord
from modnorm.errors import InvalidInputError
from modnorm.files import replaced_file
from modnorm.hints import require_name
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import AnswerRecord
from modnorm.search.voting import AnswerCount, Ballot

if TYPE_CHECKING:
    import pandas as pd

GROUP_LINES = 5_000
"""Lines of one row group: a reader decodes whole row groups, a writer holds one."""

Wanted = int | str | bool | None
"""The value that a column must have; None accepts every value."""

_TYPES: Mapping[object, pa.DataType] = MappingProxyType(
    {int: pa.int32(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
)


def _schema_of(record: type, *names: str) -> pa.Schema:
    """Return the columns of a record, of these names or in the order of its fields.

    Those with None are nullable.
    """
    hints = get_type_hints(record)
    return pa.schema(
        [
            pa.field(name, _type_of(hints[name]), NoneType in get_args(hints[name]))
            for name in names or hints
        ]
    )


def _type_of(hint: object) -> pa.DataType:
    """Return the type of a column: a list of a tuple, a struct of a record."""
    if isinstance(hint, type) and is_dataclass(hint):
        return pa.struct({name: _type_of(kind) for name, kind in get_type_hints(hint).items()})
    if not get_args(hint):
        return _TYPES[hint]
    inner = _type_of(get_args(hint)[0])  # of `tuple[inner, ...]` or `inner | None`
    return pa.list_(inner) if get_origin(hint) is tuple else inner


ANSWER_SCHEMA = _schema_of(
    AnswerRecord,
    *("candidate", "split", "row", "prompt", "gold"),
    *("completion", "vote", "reward", "correct", "tokens", "truncated"),
)
VOTE_SCHEMA = _schema_of(VoteRecord)
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


_COUNT = tuple(field.name for field in fields(AnswerCount))


def write_answers(directory: Path, answers: Iterable[AnswerRecord]) -> None:
    """Write `answers.parquet`, part by part, in bounded memory."""
    lines = ({name: getattr(answer, name) for name in ANSWER_SCHEMA.names} for answer in answers)
    _write(directory / ANSWERS, ANSWER_SCHEMA, lines)


def write_votes(directory: Path, votes: Iterable[VoteRecord]) -> None:
    # `dataclasses.asdict` copies each value deeply, which takes most of the time.
    lines = (
        {name: getattr(vote, name) for name in VOTE_SCHEMA.names}
        | {"counts": [{name: getattr(each, name) for name in _COUNT} for each in vote.counts]}
        for vote in votes
    )
    _write(directory / VOTES, VOTE_SCHEMA, lines)


def write_descriptors(directory: Path, descriptors: Iterable[tuple[int, Descriptor]]) -> None:
    """Write `descriptors.parquet` from index and descriptor of each candidate."""
    names = DESCRIPTOR_SCHEMA.names[1:]
    lines = (
        {"candidate": index, **{name: getattr(each, name) for name in names}}
        for index, each in descriptors
    )
    _write(directory / DESCRIPTORS, DESCRIPTOR_SCHEMA, lines)


def read_answers(directory: Path, **wanted: Wanted) -> Iterator[AnswerRecord]:
    """Return an iterator over the answers of a run directory, in the order of the file."""
    lines = _read(directory / ANSWERS, ANSWER_SCHEMA, wanted)
    return (AnswerRecord(**line) for line in lines)


def read_ballots(directory: Path, rows: int) -> tuple[Mapping[int, Ballot], list[str | None]]:
    """Return the votes of each model on the held-out rows, by candidate, and the gold answers.

    A missing answer gives no vote.
    """
    golds: list[str | None] = [None] * rows
    nothing = Ballot((None,) * rows, (False,) * rows)
    ballots: defaultdict[int, Ballot] = defaultdict(lambda: nothing)
    lines = _read(
        directory / ANSWERS,
        ANSWER_SCHEMA,
        {"split": "heldout"},
        ["candidate", "row", "gold", "vote", "correct"],
    )
    for candidate, sheet in groupby(lines, key=itemgetter("candidate")):
        votes, correct = list(nothing.votes), list(nothing.correct)
        for line in sheet:
            row = line["row"]
            golds[row], votes[row], correct[row] = line["gold"], line["vote"], line["correct"]
        ballots[candidate] = Ballot(tuple(votes), tuple(correct))
    return ballots, golds


def read_votes(directory: Path, **wanted: Wanted) -> Iterator[VoteRecord]:
    """Return an iterator over the votes of a run directory, in the order of the file."""
    return map(_vote_record, _read(directory / VOTES, VOTE_SCHEMA, wanted))


def read_descriptors(
    directory: Path, candidate: int | None = None
) -> Iterator[tuple[int, Descriptor]]:
    """Return an iterator over index and descriptor of the candidates of a run, or of one."""
    lines = _read(directory / DESCRIPTORS, DESCRIPTOR_SCHEMA, {"candidate": candidate})
    return map(_descriptor, lines)


def read_frame(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None
) -> "pd.DataFrame":
    """Return a file as a table of pandas."""
    _check_columns(path, schema)
    if isinstance(columns, str):
        raise InvalidInputError(
            f"{columns!r} is no list of columns", field="columns", remedy=f"give [{columns!r}]"
        )
    if columns is not None:
        columns = list(columns)  # pyarrow takes no other sequence
        for column in columns:
            require_name(column, schema.names, "columns", "column")
    with _reading(path):
        frame: pd.DataFrame = parquet.read_table(path, columns=columns).to_pandas()
    return frame


def _write(path: Path, schema: pa.Schema, lines: Iterable[Mapping[str, object]]) -> None:
    """Write a file atomically: a reader sees the old file or the new one."""
    lines = iter(lines)
    with (
        replaced_file(path) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while group := list(islice(lines, GROUP_LINES)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))


def _read(
    path: Path,
    schema: pa.Schema,
    wanted: Mapping[str, Wanted],
    columns: Sequence[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the lines with the wanted values; row groups without any are not decoded."""
    _check_columns(path, schema)
    conditions = [
        dataset.field(name) == value for name, value in wanted.items() if value is not None
    ]
    chosen = reduce(and_, conditions) if conditions else None
    with _reading(path):
        # A scan of the whole file would read all of it ahead of a slow reader.
        (file,) = dataset.dataset(path).get_fragments()
        for group in file.split_by_row_group(chosen):
            for batch in group.to_batches(columns=columns, filter=chosen):
                yield from batch.to_pylist()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Convert errors of a missing or damaged file."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error


def _check_columns(path: Path, schema: pa.Schema) -> None:
    with _reading(path):
        found = parquet.read_schema(path)
    if not found.equals(schema):
        raise InvalidInputError(
            f"{path} has other columns than this version writes", field="run", remedy=REWRITE
        )


def _vote_record(line: dict[str, Any]) -> VoteRecord:
    counts = tuple(AnswerCount(**count) for count in line.pop("counts"))
    lists = {name: tuple(value) for name, value in line.items() if isinstance(value, list)}
    return VoteRecord(**{**line, **lists, "counts": counts})


def _descriptor(line: dict[str, Any]) -> tuple[int, Descriptor]:
    index, coefficients = line.pop("candidate"), line.pop("coefficients")
    resolved = None if coefficients is None else tuple(coefficients)
    return index, Descriptor(**line, coefficients=resolved)
