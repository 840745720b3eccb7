"""The command line as a whole: its commands, its errors, its exit codes."""

import atexit
import gc
import json
import os
import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from modnorm import __version__, errors
from modnorm.cli.commands import COMMANDS, CommandGroup
from modnorm.cli.console import echo, on_one_line, output
from modnorm.files import file_fault
from modnorm.host import exempt_loopback, is_utf8

_CALLER_ERRORS = (
    errors.InvalidInputError,
    errors.NotFoundError,
    errors.ConflictError,
    errors.PreconditionError,
    errors.UnauthenticatedError,
    errors.ForbiddenError,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - how typer calls it
    if wanted:
        echo(__version__)
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
    ),
]


def build_app() -> typer.Typer:
    """Return the command line; a command is imported when a user names it."""
    app = typer.Typer(
        name="modnorm",
        cls=CommandGroup,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def modnorm(*, version: Version = False) -> None:
        """Search weight perturbations of a language model, keep the best, let them vote."""

    for name, command in COMMANDS.items():
        app.command(name, help=command.line)(_not_imported)
    return app


def _not_imported() -> None:
    """Placeholder of a command that is not imported yet."""


def main() -> None:
    """Run the command line.

    Exits with 2 when the caller has to change something, 1 when the work failed, and 130 after
    Ctrl-C. Errors of the tree in `modnorm.errors`, of the file system and of the options are one
    line on stderr (JSON with `--json`). Any other exception is a defect and keeps its traceback.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed; the next file would get its descriptor
            descriptor = os.open(os.devnull, os.O_RDWR)
            # Otherwise child processes would find it closed.
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - takes no keywords
            setattr(sys, name, os.fdopen(descriptor, mode))
    output.as_json = "--json" in sys.argv  # of a command whose options are not read yet
    # Otherwise the interpreter looks for garbage among all objects before it ends, for seconds.
    atexit.register(gc.freeze)
    exempt_loopback()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        for number, word in enumerate(sys.argv[1:], 1):
            if not is_utf8(word):
                raise errors.InvalidInputError(
                    f"argument {number} is not UTF-8: {word!a}",
                    remedy="use names in UTF-8, under a locale of UTF-8 such as LC_ALL=C.UTF-8",
                )
        sys.exit(build_app()(prog_name="modnorm", standalone_mode=False) or 0)
    except typer.TyperException as error:
        _report_usage(error)
        sys.exit(error.exit_code)
    except errors.ModnormError as error:
        _report(error)
        sys.exit(exit_code(error))
    except OSError as error:
        fault = file_fault(error)
        _report(fault)
        sys.exit(exit_code(fault))
    finally:
        output.as_json = output.quiet = False


def exit_code(error: errors.ModnormError) -> int:
    """Return 2 if the caller must change something, else 1."""
    return 2 if isinstance(error, _CALLER_ERRORS) else 1


def _report_usage(error: typer.TyperException) -> None:
    """Print an error of command, arguments or options; print help if no command was named."""
    text = _plain(error)
    if text.startswith("Usage:"):
        typer.echo(text, err=True)
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "modnorm"
    words = on_one_line(" ".join(text.split())).removesuffix(".")
    fault = errors.InvalidInputError(words[:1].lower() + words[1:], remedy=f"{path} --help")
    _report(fault)


def _plain(error: typer.TyperException) -> str:
    """Return the message of an error, with pydantic's words about a value replaced by ours."""
    text, cause = error.format_message(), error.__cause__
    if cause is None:
        return text
    from pydantic import ValidationError

    from modnorm.spec.section import plain_words

    if not isinstance(cause, ValidationError):
        return text
    fault = cause.errors(include_url=False)[0]
    return text.replace(fault["msg"], plain_words(fault))


def _report(error: errors.ModnormError) -> None:
    document = {
        "error": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "remedy": error.remedy,
        "place": error.place,
    }
    typer.echo(
        json.dumps(document) if output.as_json else on_one_line(f"error: {error}"), err=True
    )
