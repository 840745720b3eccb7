"""Plots of a suite: an image for each table that the paper plots."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from modnorm.analysis.bands import BandPoint, Bars, Level, Panel, Span, draw_panels
from modnorm.analysis.support import bin_name, support_bins
from modnorm.suites.built_tables import BuiltTable, Figure, FigureRow
from modnorm.suites.table_specs import (
    NUMBERS,
    Comparison,
    MetricTable,
    Pick,
    SupportTable,
    SurvivalTable,
    TableSpec,
    TailTable,
)

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


class _Lines:
    """Lines of one panel by name, ours and the paper's."""

    def __init__(self) -> None:
        self.ours: dict[str, list[BandPoint]] = {}
        self.paper: dict[str, list[BandPoint]] = {}

    def add(self, name: str, x: float, figure: Figure) -> None:
        if figure.mean is not None:
            self.ours.setdefault(name, []).append(BandPoint(x, figure.mean, figure.sd))
        if figure.paper is not None:
            point = BandPoint(x, figure.paper.mean, figure.paper.sd)
            self.paper.setdefault(name, []).append(point)


def draw_tables(specs: Sequence[TableSpec], tables: Sequence[BuiltTable]) -> dict[str, bytes]:
    """Return PNG bytes by name for the plotted tables that have values."""
    images = {}
    for index, (spec, table) in enumerate(zip(specs, tables, strict=True), 1):
        if panels := list(_panels(spec, table)):
            name = _NOT_IN_NAMES.sub("-", table.title.lower()).strip("-")[:60]
            images[f"{index}-{name}"] = draw_panels(panels)
    return images


def _panels(spec: TableSpec, table: BuiltTable) -> Iterable[Panel | Bars]:
    match spec:
        case MetricTable() if "N" in spec.rows:
            return _scaling_panels(spec, table)
        case SurvivalTable():
            return _survival_panels(spec, table)
        case TailTable():
            return _tail_panels(spec, table)
        case SupportTable():
            return _support_panels(spec, table)
        case _:
            return ()


def _scaling_panels(spec: MetricTable, table: BuiltTable) -> Iterator[Panel]:
    """Yield a panel for each column and group of rows; the last axis gives the lines."""
    at = spec.rows.index("N")
    groups: defaultdict[str, _Lines] = defaultdict(_Lines)
    for row in table.rows:
        if row.labels[at].isdigit():  # the unperturbed model has no N
            *title, name = ["", *row.labels[:at], *row.labels[at + 1 :]]
            for column, figure in zip(table.columns, row.figures, strict=True):
                panel = ", ".join((*filter(None, title), column))
                groups[panel].add(name, float(row.labels[at]), figure)
    return _lines_panels(groups, "N, candidates", "held-out metric, %")


def _survival_panels(spec: SurvivalTable, table: BuiltTable) -> Iterator[Panel]:
    groups: defaultdict[str, _Lines] = defaultdict(_Lines)
    for row in table.rows:
        *title, name = row.labels
        for threshold, figure in zip(spec.thresholds, row.figures, strict=True):
            groups[", ".join(title)].add(name, threshold, figure)
    return _lines_panels(groups, "selection-reward gain, points", "candidates, %")


def _lines_panels(groups: dict[str, _Lines], x: str, y: str) -> Iterator[Panel]:
    for title, lines in groups.items():
        if lines.ours:
            yield Panel(title, x, y, lines.ours, lines.paper or None)


def _tail_panels(spec: TailTable, table: BuiltTable) -> Iterator[Panel]:
    """Yield both parts of the paper's figure 4 for each comparison."""
    axis = "threshold, points over the base"
    for pair in spec.compare:
        of, against = _names(pair, NUMBERS)  # tails are of whole populations
        rates, ratios = _Lines(), _Lines()
        for row in _rows(table, pair):
            threshold = float(row.labels[1])
            rates.add(against, threshold, row.figures[1])
            rates.add(of, threshold, row.figures[0])
            ratios.add(f"{against} / {of}", threshold, row.figures[2])
        if rates.ours:
            spans = _cutoff_spans(spec, table, pair)
            title = f"{pair.label}: tail"
            yield Panel(title, axis, "candidates, %", rates.ours, log_y=True, spans=spans)
        if ratios.ours:
            yield Panel(
                f"{pair.label}: required population",
                axis,
                "N_req ratio",
                ratios.ours,
                ratios.paper or None,
                log_y=True,
                level=_size_ratio(pair),
            )


def _cutoff_spans(spec: TailTable, table: BuiltTable, pair: Comparison) -> dict[str, Span]:
    names = dict(zip(pair.places, _names(pair, NUMBERS), strict=True))
    spans = {}
    for row in (row for beside in table.beside for row in _rows(beside, pair)):
        (figure,), (_, place, population) = row.figures, row.labels
        if figure.mean is not None:
            label = f"top {spec.hits} of N = {population}"
            spans[names[place]] = Span(label, figure.mean, figure.sd)
    return spans


def _size_ratio(pair: Comparison) -> Level | None:
    """Return the ratio of both populations; None unless both places name N."""
    if "N" not in pair.of or "N" not in pair.against:
        return None
    of, against = int(pair.of["N"]), int(pair.against["N"])
    return Level(f"N = {against} / N = {of}", against / of)


def _support_panels(spec: SupportTable, table: BuiltTable) -> Iterator[Bars]:
    """Yield both parts of the paper's figure 5 for each comparison."""
    for pair in spec.compare:
        mean = next(row for row in _rows(table, pair) if row.labels[1] == "mean")
        terms = {
            column: list(figure.values.values())
            for column, figure in zip(table.columns, mean.figures, strict=True)
            if figure.values
        }
        if terms:
            shares = _shares_by_bin(table, pair)
            across = "experts that are right, m"
            yield Bars(f"{pair.label}: support", "held-out rows, %", shares, across)
            yield Bars(pair.label, "percentage points", {"": terms})


def _shares_by_bin(table: BuiltTable, pair: Comparison) -> dict[str, dict[str, list[float]]]:
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
    """Name both places by the options in which they differ."""

    def name(pick: Pick, other: Pick) -> str:
        axes = [axis for axis in {**pair.of, **pair.against} if axis not in without]
        return ", ".join(
            f"{axis} = {pick[axis]}" if axis in NUMBERS else str(pick[axis])
            for axis in axes
            if axis in pick and pick[axis] != other.get(axis)
        )

    of, against = name(pair.of, pair.against), name(pair.against, pair.of)
    return of or "of", against or "against"
