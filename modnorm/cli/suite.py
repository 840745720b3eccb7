"""`modnorm suite`: run many experiments of one file, and compare them with the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from modnorm.cli.interruption import interruptible
from modnorm.cli.options import Json, Quiet, check_output_file, check_spec, settings
from modnorm.cli.suite_output import draw, show_plan, show_status, written
from modnorm.errors import InvalidInputError, ModnormError
from modnorm.files import write_file
from modnorm.hints import one_of

if TYPE_CHECKING:
    from modnorm.suites import Cell, LoadedSuite
    from modnorm.suites.suite_file import Fragment

SuiteFile = Annotated[Path, typer.Argument(metavar="FILE", help="Suite file, YAML.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory [default: runs/NAME].")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="AXIS=OPTION", help="Only cells with this option; repeatable."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Setting of every cell, as engine.name=vllm; repeatable.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="HOST:PORT",
        help="Lab that runs the experiments [default: this process].",
    ),
]
InFlight = Annotated[
    int | None,
    typer.Option(
        "--in-flight",
        metavar="NUMBER",
        min=1,
        help="Experiments at a time [default: 1, 4 in a lab].",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run, and exit.")]
Format = Annotated[
    Literal["text", "markdown", "json"],
    typer.Option("--format", metavar="text|markdown|json", help="Format of the tables."),
]
Output = Annotated[
    Path | None,
    typer.Option("--write", metavar="FILE", help="Write to this file instead of stdout."),
]
Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="DIR", help="Figures of the finished cells go here."),
]


def run(
    suite_file: SuiteFile,
    *,
    out: Out = None,
    server: Server = None,
    only: Only = None,
    set_: Settings = None,
    in_flight: InFlight = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the cells of a suite.

    They run in this process, or on the lab named with --server.

    Started again, the same command resumes: it repeats no finished cell and retries failed ones. A
    cell that fails stops no other; the exit code is then 1.
    """
    loaded = _load(suite_file, set_)
    cells = _chosen(loaded, only)
    if dry_run:
        show_plan(loaded, cells, as_json=as_json)
        return
    from modnorm.client.rundir import RunDirectory, hold

    directory = _directory(out, loaded)
    RunDirectory(directory).check_holds_no_run()
    if server is None:
        _check_any(cells)
    with interruptible("stopped; the same command resumes here"), hold(directory):
        from modnorm.cli.suite_work import run_suite

        finished = run_suite(
            loaded, cells, directory, server=server, in_flight=in_flight, quiet=quiet
        )
    show_status(loaded, cells, directory, as_json=as_json)
    if not finished:
        raise typer.Exit(1)


def plan(
    suite_file: SuiteFile,
    *,
    only: Only = None,
    set_: Settings = None,
    as_json: Json = False,
) -> None:
    """Count experiments, candidates and evaluations of a suite."""
    loaded = _load(suite_file, set_)
    show_plan(loaded, _chosen(loaded, only), as_json=as_json)


def status(
    suite_file: SuiteFile,
    *,
    out: Out = None,
    server: Server = None,
    only: Only = None,
    as_json: Json = False,
) -> None:
    """List the cells of a suite by state.

    With --server, the lab reports on interrupted cells.
    """
    loaded = _reload(suite_file, out)
    show_status(
        loaded,
        _chosen(loaded, only),
        _directory(out, loaded),
        as_json=as_json,
        every=True,
        server=server,
    )


def tables(
    suite_file: SuiteFile,
    *,
    out: Out = None,
    format_: Format = "text",
    write: Output = None,
    plots: Plots = None,
    as_json: Json = False,
) -> None:
    """Print the tables of a suite beside the paper's numbers.

    Values are mean and sample SD over the seeds.
    """
    from modnorm.suites.building import build_tables
    from modnorm.suites.outcomes import load_outcomes

    loaded = _reload(suite_file, out)
    outcomes = load_outcomes(loaded.cells, _directory(out, loaded))
    built = build_tables(loaded, outcomes)
    text = written(built, "json" if as_json else format_)
    if write is None:
        typer.echo(text, nl=False)
    else:
        check_output_file(write, suite_file, field="write")
        write_file(write, text.encode())
    if plots is not None:
        draw(outcomes, plots)


def _check_any(cells: Sequence["Cell"]) -> None:
    """Refuse a suite before a lab is started if none of its cells can run."""
    first: ModnormError | None = None
    for cell in cells:
        try:
            check_spec(cell.spec)
        except ModnormError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _load(path: Path, set_: Sequence[str] | None) -> "LoadedSuite":
    from modnorm.suites.loading import setting

    return _settled(path, [setting(text) for text in set_ or ()])


def _settled(path: Path, laid_over: Sequence["Fragment"]) -> "LoadedSuite":
    from modnorm.suites import load_suite
    from modnorm.suites.loading import inline_files

    return inline_files(load_suite(path, laid_over), settings().cache)


def _reload(path: Path, out: Path | None) -> "LoadedSuite":
    """Load a suite with the settings that its directory was started with."""
    from modnorm.suites.running.journal import Journal

    loaded = _load(path, None)
    began = Journal(_directory(out, loaded), loaded.suite.name).settings
    return _settled(path, began) if began else loaded


def _directory(out: Path | None, loaded: "LoadedSuite") -> Path:
    return out or Path("runs") / loaded.suite.name


def _chosen(loaded: "LoadedSuite", only: Sequence[str] | None) -> tuple["Cell", ...]:
    """Return the cells with one of the requested options on each requested axis."""
    from modnorm.suites.cells import matches

    where: dict[str, tuple[str, ...]] = {}
    for text in only or ():
        axis, equals, option = text.partition("=")
        if not equals or axis not in {*loaded.suite.axes, "seed"}:
            raise InvalidInputError(
                f"{text!r} names no option of an axis",
                field="only",
                remedy=f"AXIS=OPTION with an axis: {one_of(axis, (*loaded.suite.axes, 'seed'))}",
            )
        _check_option(loaded, axis, option)
        where[axis] = (*where.get(axis, ()), option)
    cells = tuple(cell for cell in loaded.cells if matches(cell.labels, where))
    if not cells:
        raise InvalidInputError("no cell has these options", field="only")
    return cells


def _check_option(loaded: "LoadedSuite", axis: str, option: str) -> None:
    suite = loaded.suite
    options = [str(seed) for seed in suite.seeds] if axis == "seed" else list(suite.axes[axis])
    if option not in options:
        raise InvalidInputError(
            f"{axis} has no option {option!r}",
            field="only",
            remedy=one_of(option, options),
        )


COMMANDS = {"run": run, "plan": plan, "status": status, "table": tables}
