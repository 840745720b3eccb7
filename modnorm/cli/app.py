"""The command line as a whole: its commands, its errors, its exit codes."""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed_version
from pkgutil import resolve_name
from types import MappingProxyType
from typing import NamedTuple

import typer

from modnorm import errors
from modnorm.cli.console import visible
from modnorm.cli.options import Json

_CALLER_ERRORS = (
    errors.InvalidInputError,
    errors.NotFoundError,
    errors.ConflictError,
    errors.PreconditionError,
    errors.UnauthenticatedError,
    errors.ForbiddenError,
)


class Command(NamedTuple):
    """Where a command is, and what the help of all commands says of it."""

    place: str
    """`module:function`; `module:app` of a group of commands."""
    line: str
    """First sentence of its own help."""


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "version": Command("modnorm.cli.app:version", "Print the version."),
        "run": Command(
            "modnorm.cli.run:run",
            "Run experiments in this process and write results and a report.",
        ),
        "submit": Command(
            "modnorm.cli.lab:submit",
            "Submit an experiment to a lab and print its id, nothing else without --wait.",
        ),
        "watch": Command(
            "modnorm.cli.lab:watch",
            "Follow an experiment to its end.",
        ),
        "show": Command(
            "modnorm.cli.lab:show",
            "Show an experiment; with --out, write the files that `run` writes.",
        ),
        "list": Command(
            "modnorm.cli.lab:list_experiments", "List the experiments of a lab, newest first."
        ),
        "cancel": Command("modnorm.cli.lab:cancel", "Ask an experiment to stop."),
        "answers": Command(
            "modnorm.cli.answers:answers",
            "Print what the models of a finished run answered, and how that was judged.",
        ),
        "votes": Command(
            "modnorm.cli.answers:votes",
            "Print how the votes of a finished run came about: counts, ties and every expert's "
            "vote.",
        ),
        "rescore": Command(
            "modnorm.cli.rescore:rescore",
            "Judge the stored completions of a finished run by another scorer, without a model.",
        ),
        "compare": Command(
            "modnorm.cli.compare:compare",
            "Show finished runs side by side and say what keeps them from being compared.",
        ),
        "analyze": Command(
            "modnorm.cli.analyze:analyze",
            "Write tables and figures of finished runs: scaling, tails, support, agreement, "
            "costs.",
        ),
        "tune": Command(
            "modnorm.cli.tune:tune",
            "Choose the radius (sigma for randopt) with the best mean ensemble on development "
            "rows.",
        ),
        "match": Command(
            "modnorm.cli.match:match",
            "Choose the radius that changes the model's function as isotropic noise does.",
        ),
        "scales": Command(
            "modnorm.cli.scales:scales", "Print masses and scales of every physical tensor."
        ),
        "calibrate": Command(
            "modnorm.cli.calibrate:calibrate",
            "Calibrate a model's sensitivities and write the profile.",
        ),
        "export": Command(
            "modnorm.cli.export:export",
            "Write the model that es, mezo or zo_finetuner reported, or a candidate of another "
            "method.",
        ),
        "cast": Command(
            "modnorm.cli.cast:cast", "Write a model with its weights in another dtype."
        ),
        "prepare": Command(
            "modnorm.cli.prepare:prepare",
            "Prepare the generator of zo_finetuner on solved puzzles, with gradients, once a "
            "model.",
        ),
        "doctor": Command(
            "modnorm.cli.doctor:doctor",
            "Check this machine, and a lab when one is named; exit code 1 when something is "
            "broken.",
        ),
        "data": Command(
            "modnorm.cli.data:app", "List, fetch and check the rows of the paper's benchmarks."
        ),
        "suite": Command(
            "modnorm.cli.suite:app",
            "Run many experiments declared in one file, and print their tables.",
        ),
        "token": Command(
            "modnorm.cli.token:app", "Create, list and revoke the tokens that a lab accepts."
        ),
    }
)
"""All commands, in the order of the help."""


def version(*, as_json: Json = False) -> None:
    """Print the version."""
    number = installed_version("modnorm")
    typer.echo(json.dumps({"version": number}) if as_json else number)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line for some arguments.

    Only the command that they name is imported; the others are known by their names and lines.
    """
    app = typer.Typer(
        name="modnorm",
        help="Search weight perturbations of a language model, keep the best, let them vote.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        add_completion=False,
    )
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        if name != named:
            app.command(name, help=command.line)(_not_imported)
        elif isinstance(found := resolve_name(command.place), typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def _not_imported() -> None:
    """Stand for a command that the arguments do not name."""


def main() -> None:
    """Run the command line.

    Exits with 2 when the caller has to change something, 1 when the work failed, and 130 after
    Ctrl-C. Errors of the tree in `modnorm.errors`, and those of the file system, are one line
    on stderr (JSON with `--json`); whatever else is a defect and keeps its traceback.
    """
    try:
        build_app(sys.argv[1:])()
    except errors.ModnormError as error:
        _report(error, as_json="--json" in sys.argv)
        sys.exit(exit_code(error))
    except OSError as error:
        _report(_disk_fault(error), as_json="--json" in sys.argv)
        sys.exit(1)


def exit_code(error: errors.ModnormError) -> int:
    """Return 2 for what the caller must change, 1 for the rest."""
    return 2 if isinstance(error, _CALLER_ERRORS) else 1


def _disk_fault(error: OSError) -> errors.UnavailableError:
    reason = error.strerror or str(error) or type(error).__name__
    place = "" if error.filename is None else f"{error.filename}: "
    return errors.UnavailableError(
        f"{place}{reason}", remedy="mend the cause; then the same command may be given again"
    )


def _report(error: errors.ModnormError, *, as_json: bool) -> None:
    document = {
        "error": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "remedy": error.remedy,
    }
    typer.echo(json.dumps(document) if as_json else visible(f"error: {error}"), err=True)
