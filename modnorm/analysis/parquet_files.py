"""The Parquet files of a run directory: `answers.parquet` and `votes.parquet`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyarrow import dataset, parquet

from modnorm.analysis.answers import ALL, AnswerFilter, AnswerRecord
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import AnswerCount, VoteFilter, VoteRecord
from modnorm.errors import InvalidInputError
from modnorm.files import partial_path

if TYPE_CHECKING:
    import pandas as pd

RecordT = TypeVar("RecordT", AnswerRecord, VoteRecord)

ANSWERS, VOTES = "answers.parquet", "votes.parquet"
"""Names of the files in a run directory."""

ANSWER_SCHEMA = pa.schema(
    [
        pa.field("candidate", pa.int32(), nullable=False),
        pa.field("split", pa.string(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("prompt", pa.string()),
        pa.field("gold", pa.string()),
        pa.field("completion", pa.string(), nullable=False),
        pa.field("vote", pa.string()),
        pa.field("reward", pa.float64(), nullable=False),
        pa.field("correct", pa.bool_(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
    ]
)
"""Columns of `answers.parquet`; `AnswerRecord` explains them."""

VOTE_SCHEMA = pa.schema(
    [
        pa.field("population", pa.int32(), nullable=False),
        pa.field("ensemble_size", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        pa.field("gold", pa.string()),
        pa.field("answer", pa.string()),
        pa.field("correct", pa.bool_(), nullable=False),
        pa.field("valid", pa.int32(), nullable=False),
        pa.field("support", pa.int32(), nullable=False),
        pa.field("correct_support", pa.int32(), nullable=False),
        pa.field("skipped", pa.int32(), nullable=False),
        pa.field("experts", pa.list_(pa.int32()), nullable=False),
        pa.field("votes", pa.list_(pa.string()), nullable=False),
        pa.field("expert_correct", pa.list_(pa.bool_()), nullable=False),
        pa.field(
            "counts",
            pa.list_(
                pa.struct({"answer": pa.string(), "votes": pa.int32(), "expert": pa.int32()})
            ),
            nullable=False,
        ),
        pa.field("tied", pa.list_(pa.string()), nullable=False),
        pa.field("tie_broken_by", pa.int32()),
    ]
)
"""Columns of `votes.parquet`; `VoteRecord` explains them."""

GROUP_ROWS = 5_000
"""Lines of one row group: a reader decodes whole row groups."""


def write_answers(directory: Path, answers: Iterable[AnswerRecord]) -> None:
    """Write `answers.parquet`; only one row group of answers is in memory at a time.

    Raises:
        OSError: it cannot be written.
    """
    _write(directory / ANSWERS, ANSWER_SCHEMA, answers)


def write_votes(directory: Path, votes: Iterable[VoteRecord]) -> None:
    """Write `votes.parquet`.

    Raises:
        OSError: it cannot be written.
    """
    _write(directory / VOTES, VOTE_SCHEMA, votes)


def read_answers(directory: Path, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
    """Yield the answers of a run directory, in the order of the file.

    Raises:
        InvalidInputError: the directory has no `answers.parquet` of this version.
    """
    path = _checked(directory, ANSWERS, ANSWER_SCHEMA)
    conditions = _equal(candidate=wanted.candidate, split=wanted.split, row=wanted.row)
    if wanted.wrong:
        conditions.append(~dataset.field("correct"))
    for line in _lines(path, conditions):
        yield AnswerRecord(**line)


def read_votes(directory: Path, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
    """Yield the votes of a run directory, in the order of the file.

    Raises:
        InvalidInputError: the directory has no `votes.parquet` of this version.
    """
    path = _checked(directory, VOTES, VOTE_SCHEMA)
    conditions = _equal(**asdict(wanted))
    for line in _lines(path, conditions):
        counts = tuple(AnswerCount(**count) for count in line.pop("counts"))
        lists = {name: tuple(value) for name, value in line.items() if isinstance(value, list)}
        yield VoteRecord(**{**line, **lists, "counts": counts})


def answers_frame(directory: Path, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return `answers.parquet` of a run directory as a table of pandas.

    Args:
        directory: The run directory.
        columns: Columns to read; all when absent. Prompts and completions take the most memory.

    Raises:
        InvalidInputError: the directory has no `answers.parquet` of this version.
    """
    return _frame(_checked(directory, ANSWERS, ANSWER_SCHEMA), columns)


def votes_frame(directory: Path, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return `votes.parquet` of a run directory as a table of pandas.

    Args:
        directory: The run directory.
        columns: Columns to read; all when absent.

    Raises:
        InvalidInputError: the directory has no `votes.parquet` of this version.
    """
    return _frame(_checked(directory, VOTES, VOTE_SCHEMA), columns)


def _checked(directory: Path, name: str, schema: pa.Schema) -> Path:
    """Return the path of a file that has the columns of a schema."""
    path = directory / name
    remedy = (
        "give the `modnorm run` or `modnorm show --out` that made the directory once more: it "
        "writes the files again and repeats no work"
    )
    try:
        found = parquet.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", field="run", remedy=remedy
        ) from error
    if not found.equals(schema):
        raise InvalidInputError(f"{path} has other columns", field="run", remedy=remedy)
    return path


def _write(path: Path, schema: pa.Schema, records: Iterable[RecordT]) -> None:
    """Write a file whole or not at all."""
    part = partial_path(path)
    with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        for group in _groups(records):
            lines = [asdict(record) for record in group]
            writer.write_table(pa.Table.from_pylist(lines, schema=schema))
    part.replace(path)


def _groups(records: Iterable[RecordT]) -> Iterator[list[RecordT]]:
    group: list[RecordT] = []
    for record in records:
        group.append(record)
        if len(group) == GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _equal(**values: int | str | None) -> list[dataset.Expression]:
    """Return the conditions that columns equal the values that are given."""
    given = {name: value for name, value in values.items() if value is not None}
    return [dataset.field(name) == value for name, value in given.items()]


def _lines(path: Path, conditions: Sequence[dataset.Expression]) -> Iterator[dict[str, Any]]:
    chosen = reduce(and_, conditions) if conditions else None
    for batch in dataset.dataset(path).to_batches(filter=chosen):
        yield from batch.to_pylist()


def _frame(path: Path, columns: Sequence[str] | None) -> "pd.DataFrame":
    frame: pd.DataFrame = parquet.read_table(path, columns=columns).to_pandas()
    return frame
