"""`modnorm suite`: many experiments declared together, run, and set beside the paper."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from modnorm.client.cli.console import emit_json, stderr, stdout, table
from modnorm.client.cli.experiment import interruptible
from modnorm.client.cli.options import Json, Quiet, Server, connect, settings
from modnorm.client.cli.results import write_results
from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.rundir import RunDirectory, hold
from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

if TYPE_CHECKING:
    from modnorm.client.suites import CellRecord, Journal, SuiteRunner
    from modnorm.client.suites.runner import Submit
    from modnorm.client.suites.standing import CellStanding
    from modnorm.suites import Cell, LoadedSuite
    from modnorm.suites.declaration import Fragment
    from modnorm.suites.figures import BuiltTable
    from modnorm.suites.plan import SuitePlan

app = typer.Typer(
    help="Run many experiments declared in one file, and print their tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SuiteFile = Annotated[Path, typer.Argument(metavar="FILE", help="Suite file, YAML.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Directory [default: runs/NAME].")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="AXIS=OPTION", help="Cells with this option; repeatable."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Laid over every cell; repeatable: engine.name=vllm."
    ),
]
InFlight = Annotated[
    int | None,
    typer.Option("--in-flight", min=1, help="Experiments at a time [default: 1, 4 in a lab]."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would run, and end.")]
Format = Annotated[
    Literal["text", "markdown", "json"], typer.Option("--format", help="How to write tables.")
]
Output = Annotated[
    Path | None, typer.Option("--write", metavar="FILE", help="File instead of stdout.")
]
Plots = Annotated[
    Path | None, typer.Option("--plots", metavar="DIR", help="Draw the suite's figures here.")
]

_IN_FLIGHT_IN_A_LAB = 4
_PREFIX = "suite"
"""Request ids of all suites begin with it, so that suites share the experiments they share."""
_PATIENCE_SECONDS = 120.0
"""A lab may be started anew in the middle of a suite."""


@app.command()
def run(  # noqa: PLR0913 - each argument is an option of the command
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
    """Run the cells of a suite: in this process, or on the lab named with --server.

    Started again, the same command goes on where it was broken off, repeats nothing that was
    finished, and tries again what failed. A cell that fails stops no other; then the exit code
    is 1.
    """
    loaded = _load(suite_file, set_)
    cells = _chosen(loaded, only)
    if dry_run:
        _show_plan(loaded, cells, as_json=as_json)
        return
    directory = _directory(out, loaded)
    with interruptible("stopped; the same command goes on from here"), hold(directory):
        finished = _carry_out(
            loaded, cells, directory, server=server, in_flight=in_flight, quiet=quiet
        )
    _report_standing(loaded, cells, directory, as_json=as_json)
    if not finished:
        raise typer.Exit(1)


@app.command()
def plan(
    suite_file: SuiteFile,
    *,
    only: Only = None,
    set_: Settings = None,
    as_json: Json = False,
) -> None:
    """Count the experiments, candidates and model-prompt evaluations of a suite."""
    loaded = _load(suite_file, set_)
    _show_plan(loaded, _chosen(loaded, only), as_json=as_json)


@app.command()
def status(
    suite_file: SuiteFile,
    *,
    out: Out = None,
    only: Only = None,
    as_json: Json = False,
) -> None:
    """List the cells of a suite by state."""
    loaded = _reload(suite_file, out)
    _report_standing(
        loaded, _chosen(loaded, only), _directory(out, loaded), as_json=as_json, every=True
    )


@app.command("table")
def tables(  # noqa: PLR0913 - each argument is an option of the command
    suite_file: SuiteFile,
    *,
    out: Out = None,
    format_: Format = "text",
    write: Output = None,
    plots: Plots = None,
    as_json: Json = False,
) -> None:
    """Print the tables of a suite, the paper's numbers beside ours: mean and sample SD."""
    from modnorm.suites.building import build_tables
    from modnorm.suites.outcomes import load_outcomes

    loaded = _reload(suite_file, out)
    outcomes = load_outcomes(loaded.cells, _directory(out, loaded))
    built = build_tables(loaded, outcomes)
    text = _written(built, "json" if as_json else format_)
    if write is None:
        typer.echo(text, nl=False)
    else:
        write.write_text(text, encoding="utf-8")
    if plots is not None:
        _draw(loaded, built, plots)


def _load(path: Path, set_: Sequence[str] | None) -> "LoadedSuite":
    from modnorm.suites import load_suite
    from modnorm.suites.loading import setting

    return load_suite(path, [setting(text) for text in set_ or ()])


def _reload(path: Path, out: Path | None) -> "LoadedSuite":
    """Load a suite with the settings that its directory was begun with."""
    from modnorm.client.suites import Journal

    loaded = _load(path, None)
    began: tuple[Fragment, ...] = Journal(_directory(out, loaded), loaded.suite.name).settings
    if not began:
        return loaded
    from modnorm.suites import load_suite

    return load_suite(path, began)


def _directory(out: Path | None, loaded: "LoadedSuite") -> Path:
    return out or Path("runs") / loaded.suite.name


def _chosen(loaded: "LoadedSuite", only: Sequence[str] | None) -> tuple["Cell", ...]:
    """Return the cells that have one of the options named on each axis named."""
    from modnorm.suites.cells import matches

    where: dict[str, tuple[str, ...]] = {}
    for text in only or ():
        axis, equals, option = text.partition("=")
        if not equals or axis not in {*loaded.suite.axes, "seed"}:
            raise InvalidInputError(
                f"{text!r} names no option of an axis",
                field="only",
                remedy=f"AXIS=OPTION with one of {', '.join((*loaded.suite.axes, 'seed'))}",
            )
        where[axis] = (*where.get(axis, ()), option)
    cells = tuple(cell for cell in loaded.cells if matches(cell.labels, where))
    if not cells:
        raise InvalidInputError("no cell has these options", field="only")
    return cells


def _carry_out(  # noqa: PLR0913 - what a run depends on
    loaded: "LoadedSuite",
    cells: Sequence["Cell"],
    directory: Path,
    *,
    server: str | None,
    in_flight: int | None,
    quiet: bool,
) -> bool:
    from modnorm.client.suites import Journal

    journal = Journal(directory, loaded.suite.name)
    journal.check(loaded.settings)
    journal.begin(loaded.settings)
    with ExitStack() as stack:
        if server is None:
            client = stack.enter_context(embedded_client(directory, settings()))
        else:
            client = stack.enter_context(connect(server))
        runner = _runner(client, loaded, cells, directory, journal, server is None, quiet=quiet)
        runner.in_flight = in_flight or (1 if server is None else _IN_FLIGHT_IN_A_LAB)
        return runner.run()


def _runner(  # noqa: PLR0913, PLR0917 - wiring
    client: ModnormClient,
    loaded: "LoadedSuite",
    cells: Sequence["Cell"],
    directory: Path,
    journal: "Journal",
    embedded: bool,  # noqa: FBT001 - wiring
    *,
    quiet: bool,
) -> "SuiteRunner":
    from modnorm.client.resumption import take_up_shared
    from modnorm.client.suites import SuiteRunner

    submit: Submit = _take_up_here if embedded else partial(take_up_shared, prefix=_PREFIX)
    return SuiteRunner(
        client=client,
        cells=cells,
        origins=loaded.cells,
        directory=directory,
        journal=journal,
        submit=submit,
        finish=partial(_finish, client),
        patience=0.0 if embedded else _PATIENCE_SECONDS,
        listen=_pass_over if quiet else _Telling(),
    )


def _take_up_here(client: ModnormClient, spec: ExperimentSpec) -> experiments.Experiment:
    """Submit to a lab on this machine, whose paths are ours."""
    from modnorm.client.inputs import check_inputs
    from modnorm.client.resumption import take_up

    experiment = take_up(client, spec)
    check_inputs(spec, experiment.provenance, folders=settings().split_folders)
    return experiment


def _finish(
    client: ModnormClient, experiment: experiments.Experiment, place: RunDirectory
) -> None:
    write_results(client, experiment, place)


class _Telling:
    """Prints a line where a cell enters a state or a phase."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}

    def __call__(self, cell: "Cell", record: "CellRecord") -> None:
        now = (str(record.state), record.phase)
        if self._told.get(cell.id) == now:
            return
        self._told[cell.id] = now
        text = record.error or (record.phase if record.state == "submitted" else "")
        stderr().print(f"{cell.id}: {record.state} {text}".rstrip(), soft_wrap=True, markup=False)


def _pass_over(_cell: "Cell", _record: "CellRecord") -> None:
    return None


def _show_plan(loaded: "LoadedSuite", cells: Sequence["Cell"], *, as_json: bool) -> None:
    from modnorm.suites.plan import plan_suite

    found: SuitePlan = plan_suite(cells)
    if as_json:
        emit_json({"suite": loaded.suite.name, **found.as_dict()})
        return
    rows = [
        ("experiments", f"{found.experiments:,}"),
        ("candidates", f"{found.candidates:,}"),
        ("evaluations, search", f"{found.search:,}"),
        ("evaluations, held-out, at most", f"{found.final_at_most:,}"),
        ("evaluations, base", f"{found.base:,}"),
    ]
    stdout().print(table((loaded.suite.name, ""), rows))
    if found.uncounted:
        stderr().print(f"{found.uncounted} cells have rows that are not counted here")


def _report_standing(
    loaded: "LoadedSuite",
    cells: Sequence["Cell"],
    directory: Path,
    *,
    as_json: bool,
    every: bool = False,
) -> None:
    from modnorm.client.suites.standing import count_states, suite_standing

    standings = suite_standing(loaded.suite.name, cells, directory)
    counts = count_states(standings)
    if as_json:
        emit_json(
            {
                "suite": loaded.suite.name,
                "directory": str(directory),
                "states": counts,
                "cells": [standing.as_dict() for standing in standings],
            }
        )
        return
    shown = standings if every else [each for each in standings if each.record.error]
    if shown:
        stdout().print(table(("cell", "state", ""), map(_standing_row, shown)))
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    stdout().print(f"{loaded.suite.name}: {summary}")


def _standing_row(standing: "CellStanding") -> tuple[str, str, str]:
    record = standing.record
    extent = f"{record.phase} {record.done}/{record.total}" if record.total else record.phase
    known = record.error or ("" if standing.state == "finished" else extent)
    return standing.cell, standing.state, known


def _written(built: Sequence["BuiltTable"], how: str) -> str:
    from modnorm.suites.rendering import to_document, to_markdown, to_text

    if how == "json":
        return json.dumps([to_document(each) for each in built], indent=2) + "\n"
    return "\n".join((to_markdown if how == "markdown" else to_text)(each) for each in built)


def _draw(loaded: "LoadedSuite", built: Sequence["BuiltTable"], place: Path) -> None:
    from modnorm.suites.drawing import draw_tables

    place.mkdir(parents=True, exist_ok=True)
    for name, image in draw_tables(loaded.suite.tables, built).items():
        (place / f"{name}.png").write_bytes(image)
        stderr().print(f"{place / name}.png", soft_wrap=True)
