"""A command's terminal: results on stdout, progress and remarks on stderr, Ctrl-C.

Texts of other people are printed without characters that could send commands to the terminal.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NoReturn

import typer
from typing_extensions import override

from modnorm.process_output import own_stream

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


@dataclass
class Output:
    """The options `--json` and `--quiet` of the running command."""

    as_json: bool = False
    quiet: bool = False


output = Output()
INTERRUPTED, TERMINATED = 130, 143
"""The exit codes of shells for Ctrl-C and SIGTERM."""
_REPEAT_SECONDS = 0.5
"""A signal this soon after the first is the same: `timeout` sends it to process and group."""
_QUIET_SECONDS = 2.0
"""A stop that takes longer is announced."""
_STOP_SECONDS = 30.0
"""Longest stop: a lab's evaluator has 17 seconds, its other services a few."""

_PIPE_COLUMNS = 240
_CODES = {*range(0x20), *range(0x7F, 0xA0)} - set(b"\n\t")
_CONTROLS = {code: repr(chr(code))[1:-1] for code in _CODES}


def visible(text: str) -> str:
    """Return text with its control characters spelt out."""
    return text.translate(_CONTROLS)


def on_one_line(text: str) -> str:
    """Return a text on one line: line breaks and marks of text direction are spelt out, too."""
    return "".join(letter if letter.isprintable() else ascii(letter).strip("'") for letter in text)


def stderr() -> "Console":
    """Return the console of progress."""
    return _console("stderr")


def echo(text: str) -> None:
    """Print a line of the result to stdout, unless JSON is wanted."""
    if not output.as_json:
        typer.echo(visible(text), file=own_stream("stdout"))


def echo_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str] = ()
) -> None:
    """Print a table to stdout unless JSON is wanted; in a pipe it is wide, and not cut."""
    if output.as_json:
        return
    console = _console("stdout")
    if not console.is_terminal:
        console = _console("stdout", width=_PIPE_COLUMNS)
    console.print(table(headings, rows, texts))


def say(text: str) -> None:
    """Print a remark to stderr."""
    typer.echo(visible(text), file=own_stream("stderr"), err=True)


def tell(text: str) -> None:
    """Print a remark about progress to stderr, unless `--quiet` is given."""
    if not output.quiet:
        say(text)


def note(text: str) -> None:
    """Print a remark that readers of a result should know."""
    say(on_one_line(f"note: {text}"))


def _console(name: str, width: int | None = None) -> "Console":
    return _plain_console()(
        file=own_stream(name), width=width, highlight=False, markup=False, emoji=False
    )


@cache
def _plain_console() -> "type[Console]":
    """Return a console that prints texts as they are, without control characters."""
    from rich.console import Console

    class PlainConsole(Console):
        @override
        def render_str(self, text: str, **options: object) -> "Text":
            return super().render_str(visible(text), **options)  # type: ignore[arg-type]

    return PlainConsole


def emit_json(document: object) -> bool:
    """Write a document to stdout if JSON is wanted; return whether it is."""
    if output.as_json:
        typer.echo(json.dumps(document, indent=2), file=own_stream("stdout"))
    return output.as_json


def emit(document: object, text: str) -> None:
    """Write a result to stdout, as JSON or as text."""
    emit_json(document)
    echo(text)


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
    """Return a plain table; the first column and `texts` are to the left."""
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


STARTS_AGAIN = "stopped; nothing was written, the same command starts again"


@contextmanager
def interruptible(remark: str) -> Iterator[None]:
    """Exit on Ctrl-C or SIGTERM with its exit code and a remark on how to resume.

    A second signal ends the process at once, as does a stop that takes too long: a task's judge
    may never return. Interrupted work must therefore survive a kill.
    """
    stopped, code, since = threading.Event(), INTERRUPTED, 0.0

    def end_now() -> None:
        with suppress(OSError, RuntimeError):  # the signal interrupted another print
            say(f"\n{remark}")
        _end_process(code)

    def end_late() -> None:
        if stopped.wait(_QUIET_SECONDS):
            return
        tell(f"stopping within {_STOP_SECONDS:g} s; another Ctrl-C or SIGTERM ends at once")
        if not stopped.wait(_STOP_SECONDS - _QUIET_SECONDS):
            end_now()

    def stop(number: int, _: object) -> None:
        nonlocal code, since
        if not since:
            code, since = TERMINATED if number == signal.SIGTERM else INTERRUPTED, time.monotonic()
            threading.Thread(target=end_late, name="stop", daemon=True).start()
            raise KeyboardInterrupt
        if time.monotonic() - since > _REPEAT_SECONDS:
            end_now()

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN  # as in a shell's background job
    }
    try:
        yield
    except KeyboardInterrupt as error:
        stopped.set()
        say(f"\n{remark}")
        raise typer.Exit(code) from error
    finally:
        stopped.set()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End the process when Ctrl-C or SIGTERM has left the context; SIGTERM's exit code is 0."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    except KeyboardInterrupt:
        _end_process(INTERRUPTED)
    except SystemExit:
        _end_process(0)
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(0)


def _end_process(code: int) -> NoReturn:
    import multiprocessing

    for child in multiprocessing.active_children():
        child.kill()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, RuntimeError):  # a signal interrupted another print
            stream.flush()
    os._exit(code)
