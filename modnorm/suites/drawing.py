"""The figures of a suite, drawn from its tables: one image a table that the paper plots."""

import re
from collections.abc import Iterator, Sequence

from modnorm.analysis.bands import BandPoint, Bars, Panel, draw_panels
from modnorm.suites.figures import BuiltTable, Figure
from modnorm.suites.tables import (
    MetricTable,
    SupportTable,
    SurvivalTable,
    TableSpec,
    TailTable,
)

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
Lines = dict[str, list[BandPoint]]


def draw_tables(specs: Sequence[TableSpec], tables: Sequence[BuiltTable]) -> dict[str, bytes]:
    """Return PNG bytes by name, of the tables that are drawn and have numbers.

    Args:
        specs: Tables as declared.
        tables: The same, filled.
    """
    images = {}
    for index, (spec, table) in enumerate(zip(specs, tables, strict=True), 1):
        panels = list(_panels(spec, table))
        if panels:
            name = _NOT_IN_NAMES.sub("-", table.title.lower()).strip("-")[:60]
            images[f"{index}-{name}"] = draw_panels(panels)
    return images


def _panels(spec: TableSpec, table: BuiltTable) -> Iterator[Panel | Bars]:
    match spec:
        case MetricTable() if "N" in spec.rows:
            yield from _scaling(spec, table)
        case SurvivalTable():
            yield from _survival(spec, table)
        case TailTable():
            yield from _tail(table)
        case SupportTable():
            yield from _support(table)
        case _:
            return


def _scaling(spec: MetricTable, table: BuiltTable) -> Iterator[Panel]:
    """Yield a panel a column and group of rows, with a line for each option of the last axis."""
    at = spec.rows.index("N")
    others = [place for place in range(len(spec.rows)) if place != at]
    groups: dict[tuple[str, ...], tuple[Lines, Lines]] = {}
    for row in table.rows:
        if not row.labels[at].isdigit():
            continue  # the base has no N
        names = [row.labels[place] for place in others]
        for column, figure in zip(table.columns, row.figures, strict=True):
            ours, paper = groups.setdefault((*names[:-1], column), ({}, {}))
            _add(ours, paper, names[-1] if names else "", float(row.labels[at]), figure)
    for names_, (ours, paper) in groups.items():
        if ours:
            title = ", ".join(names_)
            yield Panel(title, "N, candidates", "held-out metric, %", ours, paper or None)


def _survival(spec: SurvivalTable, table: BuiltTable) -> Iterator[Panel]:
    groups: dict[str, tuple[Lines, Lines]] = {}
    for row in table.rows:
        title, name = ", ".join(row.labels[:-1]), row.labels[-1]
        ours, paper = groups.setdefault(title, ({}, {}))
        for threshold, figure in zip(spec.thresholds, row.figures, strict=True):
            _add(ours, paper, name, threshold, figure)
    for title, (ours, paper) in groups.items():
        if ours:
            yield Panel(
                title, "selection-reward gain, points", "candidates, %", ours, paper or None
            )


def _tail(table: BuiltTable) -> Iterator[Panel]:
    groups: dict[str, tuple[Lines, Lines, Lines]] = {}
    for row in table.rows:
        label, threshold = row.labels[0], float(row.labels[1])
        rates, ratios, paper = groups.setdefault(label, ({}, {}, {}))
        of, against, ratio = row.figures
        _add(rates, {}, "of", threshold, of)
        _add(rates, {}, "against", threshold, against)
        _add(ratios, paper, "ratio", threshold, ratio)
    axis = "threshold, points over the base"
    for label, (rates, ratios, paper) in groups.items():
        if rates:
            yield Panel(f"{label}: tail", axis, "candidates, %", rates, log_y=True)
        if ratios:
            yield Panel(
                f"{label}: required population", axis, "ratio", ratios, paper or None, log_y=True
            )


def _support(table: BuiltTable) -> Iterator[Bars]:
    for row in table.rows:
        values = {
            column: list(figure.values.values())
            for column, figure in zip(table.columns, row.figures, strict=True)
            if figure.values
        }
        if row.labels[1] == "mean" and values:
            yield Bars(row.labels[0], "percentage points", values)


def _add(ours: Lines, paper: Lines, name: str, x: float, figure: Figure) -> None:
    if figure.mean is not None:
        ours.setdefault(name, []).append(BandPoint(x, figure.mean, figure.sd))
    if figure.paper is not None:
        paper.setdefault(name, []).append(BandPoint(x, figure.paper.mean, figure.paper.sd))
