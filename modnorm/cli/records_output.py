"""Records of a run as commands print them: JSON, CSV, or a table of the first ones."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from itertools import chain, islice
from typing import Literal, NamedTuple, TypeVar

import typer
from rich.table import Table

from modnorm.analysis.answers import AnswerRecord
from modnorm.analysis.candidate_records import CandidateRecord
from modnorm.analysis.votes import VoteRecord
from modnorm.cli.console import on_one_line, say, stdout, visible

RecordT = TypeVar("RecordT", AnswerRecord, VoteRecord, CandidateRecord)
Output = Literal["table", "json", "csv"]

_SHORT = 60
"""Characters of a text that a cell shows."""


class Listed(NamedTuple):
    """The run whose records are printed, and the form of the output."""

    run: str
    """Directory of a run, or id of an experiment."""
    server: str | None
    """The lab that ran it."""
    limit: int
    """Most lines of the table."""
    output: Output
    """The form; JSON and CSV hold all lines."""


def print_records(records: Iterator[RecordT], kind: type[RecordT], output: Output) -> bool:
    """Write records to stdout if JSON or CSV is requested; return whether they were written."""
    if output == "json":
        _write_json(records)
    elif output == "csv":
        _write_csv(records, kind)
    return output != "table"


def show_records(
    records: Iterator[RecordT],
    limit: int,
    *,
    whole: Callable[[RecordT], None],
    listed: Callable[[Iterable[RecordT]], Table],
) -> None:
    """Show a single record whole, several as a table of at most `limit` lines."""
    first = list(islice(records, limit))
    rest = sum(1 for _ in records)
    if len(first) == 1 and not rest:
        whole(first[0])
        return
    show_table(listed(first), rest)


def show_table(listed: Table, rest: int) -> None:
    """Show a table, and say how many lines it leaves out."""
    stdout().print(listed)
    if rest:
        remark = f"{rest} more lines; --limit shows more, --csv and --json all"
        say(remark)


def peeked(records: Iterator[RecordT]) -> tuple[bool, Iterator[RecordT]]:
    """Return whether there is a record, and all of them."""
    first = list(islice(records, 1))
    return bool(first), chain(first, records)


def shown(text: str | None, *, end: bool = False) -> str:
    """Return a text on one line, cut to its beginning or `end`; a dash for None."""
    if text is None:
        return "-"
    line = on_one_line(" ".join(text.split()))
    if len(line) <= _SHORT:
        return line
    return f"...{line[-_SHORT:]}" if end else f"{line[:_SHORT]}..."


def yes(value: bool) -> str:  # noqa: FBT001 - a cell of a table
    """Return `yes` or `no`."""
    return "yes" if value else "no"


def _write_json(records: Iterable[RecordT]) -> None:
    separator = "["
    for record in records:
        typer.echo(f"{separator}\n{json.dumps(asdict(record))}", nl=False)
        separator = ","
    typer.echo("\n]" if separator == "," else "[]")


def _write_csv(records: Iterable[RecordT], kind: type[RecordT]) -> None:
    """Write a line of names, then one line for each record; lists are JSON.

    A file gets texts as they are, a terminal gets control characters spelt out.
    """
    names = [field.name for field in fields(kind)]
    sys.stdout.write(_csv_line(names))
    for record in records:
        values = asdict(record)
        line = _csv_line([_csv_cell(values[name]) for name in names])
        sys.stdout.write(visible(line) if sys.stdout.isatty() else line)


def _csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list | tuple) else value
