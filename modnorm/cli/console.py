"""The two outputs: results on stdout, progress and remarks on stderr.

Texts of other people are printed without characters that could send commands to the terminal.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import typer
from typing_extensions import override

from modnorm.process_output import own_stream

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_PIPE_COLUMNS = 240
_CODES = {*range(0x20), *range(0x7F, 0xA0)} - set(b"\n\t")
_CONTROLS = {code: repr(chr(code))[1:-1] for code in _CODES}


def visible(text: str) -> str:
    """Return text with its control characters spelt out."""
    return text.translate(_CONTROLS)


def on_one_line(name: str) -> str:
    """Return a name on one line: line breaks and marks of text direction are spelt out, too."""
    return "".join(letter if letter.isprintable() else ascii(letter).strip("'") for letter in name)


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
    stream = own_stream("stderr" if stderr else "stdout")
    return _plain_console()(file=stream, width=width, highlight=False, markup=False, emoji=False)


@cache
def _plain_console() -> "type[Console]":
    """Return a console that prints texts as they are, without control characters."""
    from rich.console import Console

    class PlainConsole(Console):
        @override
        def render_str(self, text: str, **options: object) -> "Text":
            return super().render_str(visible(text), **options)  # type: ignore[arg-type]

    return PlainConsole


def emit_json(value: object) -> None:
    """Write one JSON document to stdout."""
    typer.echo(json.dumps(value, indent=2), file=own_stream("stdout"))


def emit(document: object, text: str, *, as_json: bool) -> None:
    """Write a result to stdout, as JSON or as text."""
    if as_json:
        emit_json(document)
    else:
        typer.echo(text)


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


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str] = ()
) -> "Table":
    """Return a plain table; the first column and `texts` are to the left.

    A narrow terminal cuts the cells of `texts` first, then it folds the others.
    """
    from rich.table import Table
    from rich.text import Text

    result = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        is_figure = index > 0 and heading not in texts
        result.add_column(heading, justify="right" if is_figure else "left", overflow="fold")
    for row in rows:
        cells = zip(headings, row, strict=True)
        result.add_row(
            *(
                Text(visible(cell), no_wrap=True, overflow="ellipsis") if name in texts else cell
                for name, cell in cells
            )
        )
    return result
