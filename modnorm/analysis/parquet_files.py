"""The Parquet files of a run directory: `answers.parquet` and `votes.parquet`."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import dataset

from modnorm.analysis.answers import ALL, AnswerFilter, AnswerRecord
from modnorm.analysis.parquet_lines import equal, read_frame, read_lines, write_lines
from modnorm.analysis.votes import ALL as ALL_VOTES
from modnorm.analysis.votes import VoteFilter, VoteRecord
from modnorm.arguments import require_path, require_type
from modnorm.search.voting import AnswerCount, Ballot
from modnorm.tasks.protocol import Judgement

if TYPE_CHECKING:
    import pandas as pd

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


def write_answers(directory: Path, answers: Iterable[AnswerRecord]) -> None:
    """Write `answers.parquet`, part by part, in bounded memory.

    Raises:
        OSError: it cannot be written.
    """
    lines = ({name: getattr(answer, name) for name in ANSWER_SCHEMA.names} for answer in answers)
    write_lines(directory / ANSWERS, ANSWER_SCHEMA, lines)


def write_votes(directory: Path, votes: Iterable[VoteRecord]) -> None:
    """Write `votes.parquet`.

    Raises:
        OSError: it cannot be written.
    """
    write_lines(directory / VOTES, VOTE_SCHEMA, map(asdict, votes))


def read_answers(directory: Path | str, wanted: AnswerFilter = ALL) -> Iterator[AnswerRecord]:
    """Return an iterator over the answers of a run directory, in the order of the file.

    Raises:
        InvalidInputError: an argument has the wrong type, or the directory has no
            `answers.parquet` of this version.
    """
    require_type(wanted, AnswerFilter, "wanted")
    conditions = equal(candidate=wanted.candidate, split=wanted.split, row=wanted.row)
    if wanted.wrong:
        conditions.append(~dataset.field("correct"))
    path = require_path(directory, "directory") / ANSWERS
    lines = read_lines(path, ANSWER_SCHEMA, conditions=conditions)
    return (AnswerRecord(**line) for line in lines)


def read_ballots(directory: Path, rows: int) -> tuple[Mapping[int, Ballot], list[str | None]]:
    """Return the votes of each model on the held-out rows, by candidate, and the gold answers.

    The ballot of an expert without answers is empty: the votes of all rows may be settled.

    Args:
        directory: The run directory.
        rows: Number of held-out rows.

    Raises:
        InvalidInputError: the directory has no `answers.parquet` of this version.
    """
    lines = read_lines(
        directory / ANSWERS,
        ANSWER_SCHEMA,
        columns=["candidate", "row", "gold", "vote", "correct"],
        conditions=equal(split="heldout"),
    )
    golds: list[str | None] = [None] * rows
    ballots: defaultdict[int, Ballot] = defaultdict(partial(Ballot.from_partial_answers, {}, rows))
    for candidate, sheet in groupby(lines, key=itemgetter("candidate")):
        said = {}
        for line in sheet:
            golds[line["row"]] = line["gold"]
            said[line["row"]] = Judgement(0.0, line["vote"], line["correct"])
        ballots[candidate] = Ballot.from_partial_answers(said, rows)
    return ballots, golds


def read_votes(directory: Path | str, wanted: VoteFilter = ALL_VOTES) -> Iterator[VoteRecord]:
    """Return an iterator over the votes of a run directory, in the order of the file.

    Raises:
        InvalidInputError: an argument has the wrong type, or the directory has no
            `votes.parquet` of this version.
    """
    require_type(wanted, VoteFilter, "wanted")
    conditions = equal(**asdict(wanted))
    path = require_path(directory, "directory") / VOTES
    return map(_vote_record, read_lines(path, VOTE_SCHEMA, conditions=conditions))


def _vote_record(line: dict[str, Any]) -> VoteRecord:
    counts = tuple(AnswerCount(**count) for count in line.pop("counts"))
    lists = {name: tuple(value) for name, value in line.items() if isinstance(value, list)}
    return VoteRecord(**{**line, **lists, "counts": counts})


def answers_frame(directory: Path | str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return `answers.parquet` of a run directory as a table of pandas.

    Args:
        directory: The run directory.
        columns: Columns to read; all when absent. Prompts and completions take the most memory.

    Raises:
        InvalidInputError: the directory has no `answers.parquet` of this version, or the file
            has no such column.
    """
    return read_frame(require_path(directory, "directory") / ANSWERS, ANSWER_SCHEMA, columns)


def count_answers(directory: Path) -> tuple[int, int] | None:
    """Return the number of answers of a run directory and of their tokens, with the base's.

    None without `answers.parquet`.

    Raises:
        InvalidInputError: the file is not of this version.
    """
    if not (directory / ANSWERS).exists():
        return None
    tokens = answers_frame(directory, ["tokens"])["tokens"]
    return len(tokens), int(tokens.sum())


def votes_frame(directory: Path | str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Return `votes.parquet` of a run directory as a table of pandas.

    Args:
        directory: The run directory.
        columns: Columns to read; all when absent.

    Raises:
        InvalidInputError: the directory has no `votes.parquet` of this version, or the file has
            no such column.
    """
    return read_frame(require_path(directory, "directory") / VOTES, VOTE_SCHEMA, columns)
