"""The two outputs: results on stdout, progress and remarks on stderr."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from modnorm.process_output import own_stream

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console
    from rich.table import Table

_PIPE_COLUMNS = 240


def stdout() -> "Console":
    """Return the console of results; in a pipe it is wide, so that tables are not cut."""
    console = _console()
    return console if console.is_terminal else _console(width=_PIPE_COLUMNS)


def stderr() -> "Console":
    """Return the console of progress and remarks."""
    return _console(stderr=True)


def say(text: str) -> None:
    """Print a remark to stderr; a narrow terminal does not break it into lines."""
    stderr().print(text, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark that readers of a result should know."""
    say(f"note: {text}")


def warn(text: str) -> None:
    """Print a warning."""
    say(f"warning: {text}")


def _console(*, stderr: bool = False, width: int | None = None) -> "Console":
    from modnorm.cli.plain_console import PlainConsole

    return PlainConsole(own_stream("stderr" if stderr else "stdout"), width=width)


def emit_json(value: object) -> None:
    """Write one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=2), file=own_stream("stdout"))


def as_dict(message: "Message") -> dict[str, object]:
    """Return a message as JSON data under the names of its proto file.

    Zeros are included, so that an accuracy of 0 differs from an unknown accuracy.
    """
    from google.protobuf import json_format

    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def amount(number: int, noun: str) -> str:
    """Return a number of things: `1 answer`, `2,000 answers`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(fraction: float | None) -> str:
    """Return a metric as people write it: `41.5 %`."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def interval(bounds: Sequence[float] | None) -> str:
    """Return an interval of fractions in percent: `[32.2, 51.3]`."""
    return "-" if bounds is None else f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """Return a plain table; the first column is text, the others are figures.

    A narrow terminal shows it in blocks of columns: no figure is cut.
    """
    from modnorm.cli.folded_table import FoldedTable

    result = FoldedTable()
    for index, heading in enumerate(headings):
        result.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result
