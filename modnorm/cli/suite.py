"""`modnorm suite`: run many experiments of one file, and compare them with the paper."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modnorm.cli.console import echo, echo_table, emit_json, interruptible, say, stderr, tell
from modnorm.cli.options import LabServer, Out, arg, check_spec, opt, settings
from modnorm.errors import ModnormError

if TYPE_CHECKING:
    from modnorm.suites import Cell, LoadedSuite
    from modnorm.suites.journal import CellRecord
    from modnorm.suites.suite_file import Fragment

SuiteFile = Annotated[Path, arg("FILE", "Suite file, YAML.")]
Only = Annotated[
    list[str] | None, opt("--only AXIS=OPTION", "Only cells with this option; repeatable.")
]
Settings = Annotated[
    list[str] | None,
    opt("--set PATH=VALUE", "Setting of every cell, as engine.name=vllm; repeatable."),
]
_IN_FLIGHT_IN_A_LAB = 4
_PREFIX = "suite"
"""First part of the request ids of all suites, so that suites share equal experiments."""
_LINE_SECONDS = 60.0
"""Time between two lines of a cell at work."""
_PATIENCE_SECONDS = 120.0
"""A lab may restart during a suite."""


def run(
    suite_file: SuiteFile,
    *,
    out: Out = None,
    server: LabServer = None,
    only: Only = None,
    set_: Settings = None,
    in_flight: Annotated[
        int | None,
        opt("--in-flight NUMBER", "Experiments at a time [default: 1, 4 in a lab].", min=1),
    ] = None,
) -> None:
    """Run the cells of a suite.

    They run in this process, or on the lab named with --server.

    Started again, the same command resumes: it repeats no finished cell and retries failed ones. A
    cell that fails stops no other; the exit code is then 1.
    """
    loaded = _load_checked(suite_file, set_, only)
    cells = loaded.chosen
    from modnorm.client.run_directory import RunDirectory, hold
    from modnorm.suites.building import build_tables
    from modnorm.suites.cells import naming_cell
    from modnorm.suites.loading import in_suite
    from modnorm.suites.outcomes import TidySuite

    if not (only or set_):  # the tables are of the whole suite as the file has it
        with in_suite(suite_file):
            build_tables(TidySuite(loaded, {}, {}, {}))
    directory = _directory(out, loaded)
    RunDirectory(directory).check_holds_no_run()
    if server is None:
        faults = []
        for cell in cells:
            try:
                with in_suite(suite_file), naming_cell(cell.labels):
                    check_spec(cell.spec)
            except ModnormError as error:
                faults.append(error)
            else:
                break
        if len(faults) == len(cells):
            raise faults[0]
    with interruptible("stopped; the same command resumes here"), hold(directory):
        finished = _run_cells(loaded, cells, directory, server, in_flight)
    _show_status(loaded, cells, directory)
    if not finished:
        raise typer.Exit(1)


def plan(suite_file: SuiteFile, *, only: Only = None, set_: Settings = None) -> None:
    """Count experiments, candidates and evaluations of a suite."""
    from modnorm.suites.cost_estimate import plan_cells
    from modnorm.suites.loading import in_suite

    loaded = _load_checked(suite_file, set_, only)
    with in_suite(suite_file):
        plans = plan_cells(loaded.chosen)
    headings = {
        "candidates": "candidates",
        "search": "evaluations, search",
        "development": "evaluations, development",
        "monitoring": "evaluations, monitored states",
        "final_at_most": "evaluations, held-out, at most",
        "base": "evaluations, base",
    }
    sums = {name: sum(getattr(plan, name) or 0 for plan in plans.values()) for name in headings}
    uncounted = sum(plan.search is None for plan in plans.values())
    document = {"suite": loaded.suite.name, "experiments": len(plans), **sums}
    cells = [{"cell": cell, **asdict(plan)} for cell, plan in plans.items()]
    if emit_json({**document, "uncounted": uncounted, "cells": cells}):
        return
    rows = [("experiments", f"{len(plans):,}")]
    rows += [(headings[name], f"{count:,}") for name, count in sums.items()]
    echo_table((loaded.suite.name, ""), rows)
    if uncounted:
        say(f"{uncounted} cells have rows that are not counted here")


def status(suite_file: SuiteFile, *, out: Out = None, only: Only = None) -> None:
    """List the cells of a suite by state."""
    loaded = _reload(suite_file, out, only)
    _show_status(loaded, loaded.chosen, _directory(out, loaded), every=True)


def tables(suite_file: SuiteFile, *, out: Out = None) -> None:
    """Print the tables of a suite beside the paper's numbers, in Markdown.

    Values are mean and sample SD over the seeds.
    """
    from modnorm.suites.building import build_tables
    from modnorm.suites.outcomes import read_suite
    from modnorm.suites.rendering import to_document, to_markdown

    loaded = _reload(suite_file, out)
    built = build_tables(read_suite(loaded, _directory(out, loaded)))
    if not emit_json([to_document(each) for each in built]):
        typer.echo("\n".join(map(to_markdown, built)), nl=False)


COMMANDS = {"run": run, "plan": plan, "status": status, "table": tables}


def _load(
    path: Path, laid_over: "Sequence[Fragment]", only: Sequence[str] | None
) -> "LoadedSuite":
    from modnorm.suites import load_suite
    from modnorm.suites.loading import in_suite, inline_files

    with in_suite(path):
        return inline_files(load_suite(path, laid_over, only or ()), settings().cache)


def _load_checked(
    path: Path, set_: Sequence[str] | None, only: Sequence[str] | None
) -> "LoadedSuite":
    """Load a suite; refuse a fault of a chosen cell that no other machine would cure."""
    from modnorm.spec_checks import check_names, check_splits_differ
    from modnorm.suites.cells import naming_cell
    from modnorm.suites.loading import in_suite, setting

    loaded = _load(path, [setting(text) for text in set_ or ()], only)
    for cell in loaded.chosen:
        with in_suite(path), naming_cell(cell.labels):
            check_names(cell.spec)
            check_splits_differ(cell.spec)
    return loaded


def _reload(path: Path, out: Path | None, only: Sequence[str] | None = None) -> "LoadedSuite":
    """Load a suite with the settings that its directory was started with."""
    from modnorm.suites.journal import Journal

    loaded = _load(path, (), only)
    began = Journal(_directory(out, loaded), loaded.suite.name).settings
    return _load(path, began, only) if began else loaded


def _directory(out: Path | None, loaded: "LoadedSuite") -> Path:
    return out or Path("runs") / loaded.suite.name


def _run_cells(
    loaded: "LoadedSuite",
    cells: "Sequence[Cell]",
    directory: Path,
    server: str | None,
    in_flight: int | None,
) -> bool:
    """Run cells; return whether all are finished."""
    from modnorm.cli.results import write_results
    from modnorm.cli.run import lab_for, run_distillation
    from modnorm.suites.journal import CellState, Journal
    from modnorm.suites.runner import SuiteRunner

    journal = Journal(directory, loaded.suite.name)
    journal.begin(loaded.settings)
    searches = [cell for cell in cells if cell.spec.distillation is None]
    listen = _progress_lines()
    embedded, finished = server is None, True
    profiles: dict[str, str] = {}
    for cell in cells:  # first, since searches may use their profiles
        if cell.spec.distillation is not None:
            profiles[cell.id] = ""
            listen(cell, journal.note(cell.id, state=CellState.SUBMITTED, error=""))
            try:
                place = directory / cell.id
                run_distillation(cell.spec, place, directory, server, device=None)
                record = journal.note(cell.id, state=CellState.FINISHED)
            except ModnormError as error:
                record = journal.note(cell.id, state=CellState.FAILED, error=str(error))
                finished = False
            listen(cell, record)
    profiles |= find_profiles(loaded, searches, directory, calibrate=embedded)
    if searches:
        with lab_for(directory, server, _PREFIX) as (client, submit):
            finished &= SuiteRunner(
                client=client,
                cells=searches,
                profiles=profiles,
                directory=directory,
                journal=journal,
                submit=submit,
                finish=partial(write_results, client, of_suite=True),
                in_flight=in_flight or (1 if embedded else _IN_FLIGHT_IN_A_LAB),
                patience=0.0 if embedded else _PATIENCE_SECONDS,
                listen=listen,
            ).run()
    return finished


def find_profiles(
    loaded: "LoadedSuite", cells: "Sequence[Cell]", directory: Path, *, calibrate: bool
) -> dict[str, str]:
    """Return the profiles of those finished cells that run or whose profile others use, by cell.

    With `calibrate`, those that some cells need from cells which do not run are calibrated.
    """
    from modnorm.suites.outcomes import load_finished, profile_digest

    known = {cell.id for cell in cells} | {cell.profile_of for cell in cells}
    finished, *_ = load_finished([cell for cell in loaded.cells if cell.id in known], directory)
    running = {cell.id for cell in cells} - finished.keys()
    wanted = {cell.profile_of for cell in cells if cell.id in running}
    origins = [cell for cell in loaded.cells if cell.id in wanted - running - finished.keys()]
    profiles = {name: profile_digest(run) for name, run in finished.items()}
    if not origins or not calibrate:
        return profiles
    from modnorm.client.matching import calibrate_experiment  # loads torch

    for origin in origins:
        say(f"{origin.id}: calibrating its profile, which other cells use")
        profiles[origin.id] = calibrate_experiment(origin.spec, settings())
    return profiles


def _progress_lines() -> "Callable[[Cell, CellRecord], None]":
    """Return what prints a line at a change of a cell, and once a minute while it works."""
    from modnorm.cli.progress import Screen

    states: dict[str, str] = {}
    screens: dict[str, Screen] = {}

    def show(cell: "Cell", record: "CellRecord") -> None:
        if states.get(cell.id) != record.state:
            states[cell.id] = record.state
            tell(f"{cell.id}: {record.state} {record.error}".rstrip())
        if record.state == "submitted" and record.phase:
            screen = screens.setdefault(
                cell.id, Screen(stderr(), cell.id, line_seconds=_LINE_SECONDS)
            )
            waiting = f"waiting: {record.waits_for}" if record.waits_for else ""
            screen.show(record.phase, record.done, record.total, (), waiting)

    return show


def _show_status(
    loaded: "LoadedSuite", cells: "Sequence[Cell]", directory: Path, *, every: bool = False
) -> None:
    """Print the state of cells: those with an error, or with `every` all."""
    from modnorm.suites.runner import suite_status

    records = suite_status(loaded.suite.name, cells, directory)
    counts = Counter(str(record.state) for record in records.values())
    emit_json(
        {
            "suite": loaded.suite.name,
            "directory": str(directory),
            "states": counts,
            "cells": [{"cell": cell, **asdict(record)} for cell, record in records.items()],
        }
    )
    rows = []
    for cell, record in records.items():
        if not (every or record.error):
            continue
        text = f"{record.phase} {record.done}/{record.total}" if record.total else record.phase
        if record.waits_for:
            text += f", waiting: {record.waits_for}"
        if record.state == "finished":
            text = ""
        rows.append((cell, str(record.state), record.error or text))
    if rows:
        echo_table(("cell", "state", ""), rows)
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    echo(f"{loaded.suite.name}: {summary}")
