"""The command line as a whole: its commands, its errors, its exit codes."""

import json
import sys
from importlib.metadata import version as installed_version

import typer

from modnorm import errors
from modnorm.cli import (
    calibrate,
    cast,
    compare,
    data,
    doctor,
    export,
    lab,
    match,
    prepare,
    rescore,
    run,
    scales,
    suite,
    token,
    tune,
)
from modnorm.cli.console import visible
from modnorm.cli.options import Json

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_CALLER_ERRORS = (
    errors.InvalidInputError,
    errors.NotFoundError,
    errors.ConflictError,
    errors.PreconditionError,
    errors.UnauthenticatedError,
    errors.ForbiddenError,
)

app = typer.Typer(
    name="modnorm",
    help="Search weight perturbations of a language model, keep the best, let them vote.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command()
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    number = installed_version("modnorm")
    typer.echo(json.dumps({"version": number}) if as_json else number)


app.command("run")(run.run)
app.command("submit")(lab.submit)
app.command("watch")(lab.watch)
app.command("show")(lab.show)
app.command("list")(lab.list_experiments)
app.command("cancel")(lab.cancel)
app.command("rescore")(rescore.rescore)
app.command("compare")(compare.compare)
app.command("tune")(tune.tune)
app.command("match")(match.match)
app.command("scales")(scales.scales)
app.command("calibrate")(calibrate.calibrate)
app.command("export")(export.export)
app.command("cast")(cast.cast)
app.command("prepare")(prepare.prepare)
app.command("doctor")(doctor.doctor)
app.add_typer(data.app, name="data")
app.add_typer(suite.app, name="suite")
app.add_typer(token.app, name="token")


def main() -> None:
    """Run the command line.

    Exits with 2 when the caller has to change something, 1 when the work failed, and 130 after
    Ctrl-C. Errors of the tree in `modnorm.errors`, and those of the file system, are one line
    on stderr (JSON with `--json`); whatever else is a defect and keeps its traceback.
    """
    try:
        app()
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
