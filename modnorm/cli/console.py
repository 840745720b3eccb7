"""Where output goes: results to stdout, everything else to stderr."""

import json
from collections.abc import Iterable, Sequence

import typer
from google.protobuf import json_format
from google.protobuf.message import Message
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import override

_PIPE_COLUMNS = 240
_CODES = {*range(0x20), *range(0x7F, 0xA0)} - set(b"\n\t")
_CONTROLS = {code: repr(chr(code))[1:-1] for code in _CODES}


def visible(text: str) -> str:
    """Return text whose control characters are spelt out.

    Names and errors are other people's: written as they are, they could command a terminal.
    """
    return text.translate(_CONTROLS)


def on_one_line(name: str) -> str:
    """Return a name whose line breaks and marks of direction are spelt out as well."""
    return "".join(letter if letter.isprintable() else ascii(letter).strip("'") for letter in name)


class _Console(Console):
    @override
    def render_str(self, text: str, **options: object) -> Text:
        return super().render_str(visible(text), **options)  # type: ignore[arg-type]


def stdout() -> Console:
    """Return the console of results; a pipe has no edge to cut tables at."""
    console = _console()
    return console if console.is_terminal else _console(width=_PIPE_COLUMNS)


def stderr() -> Console:
    """Return the console of progress and remarks."""
    return _console(stderr=True)


def _console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Return a console that prints texts as they are: a name may look like markup."""
    return _Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def emit_json(value: object) -> None:
    """Write one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=2))


def as_dict(message: Message) -> dict[str, object]:
    """Return a message as JSON data under the names of its proto file.

    Zeros stand there, so that an accuracy of 0 is told from one that is not known yet.
    """
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def percent(fraction: float | None) -> str:
    """Return a metric as people write it: `41.5 %`."""
    return "-" if fraction is None else f"{100 * fraction:.1f} %"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a plain table; the first column is text, the others are figures."""
    result = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        result.add_column(heading, justify="right" if index else "left", no_wrap=True)
    for row in rows:
        result.add_row(*row)
    return result
