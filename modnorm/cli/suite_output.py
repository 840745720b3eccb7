"""Output of the commands of `modnorm suite`."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import emit_json, say, stdout, table
from modnorm.cli.options import connect
from modnorm.files import write_fault

if TYPE_CHECKING:
    from modnorm.suites import Cell, LoadedSuite
    from modnorm.suites.outcomes import SuiteOutcomes
    from modnorm.suites.rendering import BuiltTable
    from modnorm.suites.running.suite_status import CellStatus
    from modnorm.suites.suite_plan import SuitePlan


def show_plan(loaded: "LoadedSuite", cells: Sequence["Cell"], *, as_json: bool) -> None:
    """Print the expected cost of cells."""
    from modnorm.suites.suite_plan import plan_suite

    plan: SuitePlan = plan_suite(cells)
    if as_json:
        emit_json({"suite": loaded.suite.name, **plan.as_dict()})
        return
    rows = [
        ("experiments", f"{plan.experiments:,}"),
        ("candidates", f"{plan.candidates:,}"),
        ("evaluations, search", f"{plan.search:,}"),
        ("evaluations, development", f"{plan.development:,}"),
        ("evaluations, monitored states", f"{plan.monitoring:,}"),
        ("evaluations, held-out, at most", f"{plan.final_at_most:,}"),
        ("evaluations, base", f"{plan.base:,}"),
    ]
    stdout().print(table((loaded.suite.name, ""), rows))
    if plan.uncounted:
        say(f"{plan.uncounted} cells have rows that are not counted here")


def show_status(
    loaded: "LoadedSuite",
    cells: Sequence["Cell"],
    directory: Path,
    *,
    as_json: bool,
    every: bool = False,
    server: str | None = None,
) -> None:
    """Print the state of cells.

    Only cells with an error are listed, or with `every` all cells. A server reports on interrupted
    cells.
    """
    from modnorm.suites.running.suite_status import count_states, suite_status

    with ExitStack() as stack:
        client = stack.enter_context(connect(server)) if server else None
        statuses = suite_status(loaded.suite.name, cells, directory, client)
    counts = count_states(statuses)
    if as_json:
        emit_json(
            {
                "suite": loaded.suite.name,
                "directory": str(directory),
                "states": counts,
                "cells": [status.as_dict() for status in statuses],
            }
        )
        return
    shown = statuses if every else [each for each in statuses if each.record.error]
    if shown:
        stdout().print(table(("cell", "state", ""), map(_status_row, shown)))
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    stdout().print(f"{loaded.suite.name}: {summary}")


def _status_row(status: "CellStatus") -> tuple[str, str, str]:
    record = status.record
    progress = f"{record.phase} {record.done}/{record.total}" if record.total else record.phase
    if record.waits_for:
        progress += f", waiting: {record.waits_for}"
    return (
        status.cell,
        status.state,
        record.error or ("" if status.state == "finished" else progress),
    )


def written(built: Sequence["BuiltTable"], how: str) -> str:
    """Return tables as `text`, `markdown` or `json`."""
    from modnorm.suites.rendering import to_document, to_markdown, to_text

    if how == "json":
        return json.dumps([to_document(each) for each in built], indent=2) + "\n"
    return "\n".join((to_markdown if how == "markdown" else to_text)(each) for each in built)


def draw(outcomes: "SuiteOutcomes", place: Path) -> None:
    """Write the figures of the finished cells into a directory, and their names to stderr.

    Raises:
        InvalidInputError: two cells differ in other settings than those that figures compare.
    """
    from modnorm.analysis.analyses import analyze
    from modnorm.analysis.analysis_files import write_figures
    from modnorm.analysis.comparison import load_all_results
    from modnorm.analysis.run_tables import tabulate_runs

    runs = load_all_results([each.results.directory for each in outcomes.finished.values()])
    try:
        names = write_figures(place, analyze(tabulate_runs(runs))) if runs else ()
    except OSError as error:
        raise write_fault(place, error, "plots") from error
    if not names:
        say("no plots: no finished cell has results that figures show")
    for name in names:
        say(f"{place / name}.png")
