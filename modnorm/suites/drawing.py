"""The figures of a suite, drawn from its tables: one image a table that the paper plots."""

import re
from collections.abc import Iterator, Sequence

from modnorm.analysis.bands import BandPoint, Bars, Level, Panel, Span, draw_panels
from modnorm.analysis.support import bin_name, support_bins
from modnorm.suites.figures import BuiltTable, Figure, FigureRow
from modnorm.suites.points import NUMBERS
from modnorm.suites.tables import (
    Comparison,
    MetricTable,
    Pick,
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
            yield from _tail(spec, table)
        case SupportTable():
            yield from _support(spec, table)
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


def _tail(spec: TailTable, table: BuiltTable) -> Iterator[Panel]:
    """Yield both parts of the paper's figure 4 for each comparison."""
    axis = "threshold, points over the base"
    for pair in spec.compare:
        of, against = _names(pair, NUMBERS)  # tails are of whole populations
        rates: Lines = {}
        ratios: Lines = {}
        paper: Lines = {}
        for row in _rows(table, pair):
            threshold = float(row.labels[1])
            _add(rates, {}, against, threshold, row.figures[1])
            _add(rates, {}, of, threshold, row.figures[0])
            _add(ratios, paper, f"{against} / {of}", threshold, row.figures[2])
        if rates:
            title, spans = f"{pair.label}: tail", _cutoffs(spec, table, pair)
            yield Panel(title, axis, "candidates, %", rates, log_y=True, spans=spans)
        if ratios:
            yield Panel(
                f"{pair.label}: required population",
                axis,
                "N_req ratio",
                ratios,
                paper or None,
                log_y=True,
                level=_reduction(pair),
            )


def _cutoffs(spec: TailTable, table: BuiltTable, pair: Comparison) -> dict[str, Span]:
    names = dict(zip(("of", "against"), _names(pair, NUMBERS), strict=True))
    spans = {}
    for row in (row for beside in table.beside for row in _rows(beside, pair)):
        (figure,), (_, place, population) = row.figures, row.labels
        if figure.mean is not None:
            label = f"top {spec.hits} of N = {population}"
            spans[names[place]] = Span(label, figure.mean, figure.sd)
    return spans


def _reduction(pair: Comparison) -> Level | None:
    """Return how many times as many candidates the other place has; None where it names no N."""
    if "N" not in pair.of or "N" not in pair.against:
        return None
    of, against = int(pair.of["N"]), int(pair.against["N"])
    return Level(f"N = {against} / N = {of}", against / of)


def _support(spec: SupportTable, table: BuiltTable) -> Iterator[Bars]:
    """Yield both parts of the paper's figure 5 for each comparison."""
    for pair in spec.compare:
        shares = _by_bin(table, pair)
        terms = {
            column: list(figure.values.values())
            for row in _rows(table, pair)
            if row.labels[1] == "mean"
            for column, figure in zip(table.columns, row.figures, strict=True)
            if figure.values
        }
        if terms:
            across = "experts that are right, m"
            yield Bars(f"{pair.label}: support", "held-out rows, %", shares, across)
            yield Bars(pair.label, "percentage points", {"": terms})


def _by_bin(table: BuiltTable, pair: Comparison) -> dict[str, dict[str, list[float]]]:
    """Return p(m) of both places by bin."""
    bins = [bin_name(counts) for counts in support_bins(int(pair.of["K"]))]
    rows = {row.labels[1]: row for beside in table.beside for row in _rows(beside, pair)}
    of, against = _names(pair)
    return {
        name: {each: list(rows[each].figures[place].values.values()) for each in bins}
        for place, name in ((1, against), (0, of))
    }


def _rows(table: BuiltTable, pair: Comparison) -> list[FigureRow]:
    return [row for row in table.rows if row.labels[0] == pair.label]


def _names(pair: Comparison, without: Sequence[str] = ()) -> tuple[str, str]:
    """Name both places by the options that only one of them has."""
    axes = [
        axis
        for axis in {**pair.of, **pair.against}
        if axis not in without and pair.of.get(axis) != pair.against.get(axis)
    ]

    def name(pick: Pick) -> str:
        return ", ".join(
            f"{axis} = {pick[axis]}" if axis in NUMBERS else str(pick[axis])
            for axis in axes
            if axis in pick
        )

    return name(pair.of) or "of", name(pair.against) or "against"


def _add(ours: Lines, paper: Lines, name: str, x: float, figure: Figure) -> None:
    if figure.mean is not None:
        ours.setdefault(name, []).append(BandPoint(x, figure.mean, figure.sd))
    if figure.paper is not None:
        paper.setdefault(name, []).append(BandPoint(x, figure.paper.mean, figure.paper.sd))
