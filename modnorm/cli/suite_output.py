"""What the commands of `modnorm suite` print."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from modnorm.cli.console import emit_json, stderr, stdout, table
from modnorm.cli.options import connect

if TYPE_CHECKING:
    from modnorm.suites import Cell, LoadedSuite
    from modnorm.suites.figures import BuiltTable
    from modnorm.suites.running.suite_status import CellStatus
    from modnorm.suites.suite_plan import SuitePlan


def show_plan(loaded: "LoadedSuite", cells: Sequence["Cell"], *, as_json: bool) -> None:
    """Print what cells would cost."""
    from modnorm.suites.suite_plan import plan_suite

    found: SuitePlan = plan_suite(cells)
    if as_json:
        emit_json({"suite": loaded.suite.name, **found.as_dict()})
        return
    rows = [
        ("experiments", f"{found.experiments:,}"),
        ("candidates", f"{found.candidates:,}"),
        ("evaluations, search", f"{found.search:,}"),
        ("evaluations, development", f"{found.development:,}"),
        ("evaluations, watched states", f"{found.monitoring:,}"),
        ("evaluations, held-out, at most", f"{found.final_at_most:,}"),
        ("evaluations, base", f"{found.base:,}"),
    ]
    stdout().print(table((loaded.suite.name, ""), rows))
    if found.uncounted:
        stderr().print(f"{found.uncounted} cells have rows that are not counted here")


def show_standing(  # noqa: PLR0913 - all by keyword but the first three; they are what is shown
    loaded: "LoadedSuite",
    cells: Sequence["Cell"],
    directory: Path,
    *,
    as_json: bool,
    every: bool = False,
    server: str | None = None,
) -> None:
    """Print how far cells are.

    Args:
        loaded: The suite.
        cells: The cells.
        directory: The directory of the suite.
        as_json: Print a document instead.
        every: List every cell instead of those with an error.
        server: Lab to ask for what was broken off; None to ask none.
    """
    from modnorm.suites.running.suite_status import count_states, suite_status

    with ExitStack() as stack:
        ask = stack.enter_context(connect(server)).get if server else None
        standings = suite_status(loaded.suite.name, cells, directory, ask)
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


def _standing_row(standing: "CellStatus") -> tuple[str, str, str]:
    record = standing.record
    extent = f"{record.phase} {record.done}/{record.total}" if record.total else record.phase
    going_on = f"{extent}, waiting: {record.waits_for}" if record.waits_for else extent
    known = record.error or ("" if standing.state == "finished" else going_on)
    return standing.cell, standing.state, known


def written(built: Sequence["BuiltTable"], how: str) -> str:
    """Return tables as `text`, `markdown` or `json`."""
    from modnorm.suites.rendering import to_document, to_markdown, to_text

    if how == "json":
        return json.dumps([to_document(each) for each in built], indent=2) + "\n"
    return "\n".join((to_markdown if how == "markdown" else to_text)(each) for each in built)


def draw(loaded: "LoadedSuite", built: Sequence["BuiltTable"], place: Path) -> None:
    """Write the figures of a suite into a directory, and their names to stderr."""
    from modnorm.suites.suite_plots import draw_tables

    images = draw_tables(loaded.suite.tables, built)
    if not images:
        stderr().print("no plots: the suite has no table that is drawn and has numbers yet")
        return
    place.mkdir(parents=True, exist_ok=True)
    for name, image in images.items():
        (place / f"{name}.png").write_bytes(image)
        stderr().print(f"{place / name}.png", soft_wrap=True)
