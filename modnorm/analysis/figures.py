"""The figures of an analysis, in the form of the paper's figures 1 to 5.

Lines are means over seeds, with a band of one sample SD on either side.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from modnorm.analysis.analyses import Analysis
from modnorm.analysis.plots import INK, MUTED, RIGHT, Image, prepare, saved
from modnorm.analysis.tail import HITS

SERIES = ("#b4472e", RIGHT, "#6b8f3c", "#7d5ba6", "#c28a2b", "#4a4a4a")
"""Colours in the order of the series."""
_ALONE = SERIES[2]
"""Colour of bars that stand alone, unlike those of two compared series."""
_FILLED = 0.7
"""Share of a bar's place that the bar fills."""
_BETWEEN_SEEDS = 0.22
"""Distance between the markers of two seeds, as a share of a bar's width."""
_PANEL = (4.2, 3.2)
_ACROSS = 4
_TICKS = 8
_COLUMNS = 2
"""Columns of a legend above bars."""
_TITLE = 42
"""Characters of a line of a title."""
_DPI = 160


@dataclass(frozen=True, slots=True)
class BandPoint:
    """One point of a series; the SD is None with a single seed."""

    x: float
    mean: float
    sd: float | None = None


Series = Mapping[str, Sequence[BandPoint]]


@dataclass(frozen=True, slots=True)
class Span:
    """A place on the x axis, with a band of one sample SD on either side."""

    label: str
    mean: float
    sd: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A place on the y axis."""

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    series: Series
    log_y: bool = False
    spans: Mapping[str, Span] = field(default_factory=dict)
    """Vertical bands in the colours of the series of the same names."""
    level: Level | None = None
    """A dashed line across."""
    limits: tuple[float, float] | None = None
    """Ends of the y axis; bands are clipped to them."""
    ticks: Sequence[float] = ()
    """Places that the x axis names; chosen by matplotlib if there are none or too many."""
    without_first_colour: bool = False
    """Whether the series that other panels draw first is not here, so its colour is left out."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars with a marker for each seed, and the sample SD."""

    title: str
    y: str
    series: Mapping[str, Mapping[str, Sequence[float]]]
    """Values of the seeds, by series and bar; bars of one name stand side by side."""
    x: str = ""


@rc_context({"text.parse_math": False})  # names are no mathematics, whatever dollars they have
def draw_panels(panels: Sequence[Panel | Bars], image: Image = "png") -> bytes:
    """Return panels in one image, in rows of four; at least one."""
    across = min(len(panels), _ACROSS)
    down = -(-len(panels) // across)
    figure = Figure(
        figsize=(_PANEL[0] * across, _PANEL[1] * down),
        dpi=_DPI,
        layout="constrained",
        facecolor="white",
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        prepare(axes)
        if isinstance(panel, Bars):
            _draw_bars(axes, panel)
        else:
            _draw_bands(axes, panel)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    return saved(figure, image)


def _draw_bands(axes: Axes, panel: Panel) -> None:
    start = int(panel.without_first_colour)
    colours = dict(zip(panel.series, (SERIES * (len(panel.series) + 1))[start:], strict=False))
    floor = _floor(panel) if panel.log_y else -math.inf
    for name, points in panel.series.items():
        _draw_series(axes, name, points, colours[name], floor)
    for name in panel.series:
        if name in panel.spans:
            _draw_span(axes, panel.spans[name], colours[name])
    if panel.level is not None:
        level = panel.level
        axes.axhline(level.y, color=INK, linestyle="--", linewidth=1.1, label=level.label)
    if math.isfinite(floor):  # else there is nothing above 0, which such an axis needs
        _scale_by_logarithm(axes)
    if any(_lower(point) < floor for points in panel.series.values() for point in points):
        axes.set_ylim(bottom=floor)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    if 0 < len(panel.ticks) <= _TICKS:
        axes.set_xticks(panel.ticks)
    axes.set_xlabel(panel.x, color=MUTED, fontsize=8)
    _label(axes, panel.title, panel.y)
    _add_legend(axes)


def _floor(panel: Panel) -> float:
    """Return the lower end of a logarithmic axis: half of the least positive value.

    Bands reach down to 0 and below it, where such an axis has no place.
    """
    shown = [point.mean for points in panel.series.values() for point in points]
    shown += [panel.level.y] if panel.level else []
    return min((y for y in shown if y > 0), default=-math.inf) / 2


def _lower(point: BandPoint) -> float:
    return point.mean - (point.sd or 0.0)


def _draw_series(
    axes: Axes, name: str, points: Sequence[BandPoint], colour: str, floor: float
) -> None:
    xs, means = [p.x for p in points], np.array([p.mean for p in points])
    lower = np.array([max(_lower(p), floor) for p in points])
    upper = np.array([max(p.mean + (p.sd or 0.0), floor) for p in points])
    axes.plot(xs, means, marker="o", markersize=3.5, linewidth=1.8, color=colour, label=name)
    axes.fill_between(xs, lower, upper, color=colour, alpha=0.18, linewidth=0)


def _scale_by_logarithm(axes: Axes) -> None:
    axes.set_yscale("log", nonpositive="mask")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _draw_span(axes: Axes, span: Span, colour: str) -> None:
    spread = span.sd or 0.0
    axes.axvspan(span.mean - spread, span.mean + spread, color=colour, alpha=0.1, linewidth=0)
    axes.axvline(span.mean, color=colour, linestyle=":", linewidth=1.3, label=span.label)


def _draw_bars(axes: Axes, bars: Bars) -> None:
    names = list(dict.fromkeys(name for values in bars.series.values() for name in values))
    colours = SERIES * len(bars.series) if len(bars.series) > 1 else (_ALONE,)
    width = _FILLED / len(bars.series)
    for index, (label, by_bar) in enumerate(bars.series.items()):
        shift = (index - (len(bars.series) - 1) / 2) * width
        places = [names.index(name) + shift for name in by_bar]
        axes.bar(
            places,
            [float(np.mean(values)) for values in by_bar.values()],
            width=width,
            color=colours[index],
            yerr=[_spread(values) for values in by_bar.values()],
            error_kw={"ecolor": INK, "elinewidth": 1.1},
            label=label,
        )
        for place, values in zip(places, by_bar.values(), strict=True):
            beside = _BETWEEN_SEEDS * width * (np.arange(len(values)) - (len(values) - 1) / 2)
            axes.plot(place + beside, values, "o", color="white", mec=INK, markersize=3.2)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel(bars.x, color=MUTED, fontsize=8)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.margins(y=0.1)
    lines = -(-len(bars.series) // _COLUMNS) if len(bars.series) > 1 else 0
    _label(axes, bars.title, bars.y, pad=6 + 11 * lines)
    if lines:
        _add_legend_above(axes)


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _add_legend(axes: Axes) -> None:
    """Add a legend with a background, so that lines below it do not hide it."""
    axes.legend(framealpha=0.85, edgecolor="none", fontsize=7, labelcolor=INK, handlelength=1.5)


def _add_legend_above(axes: Axes) -> None:
    """Add a legend between title and bars, which would be below it anywhere else."""
    axes.legend(
        frameon=False,
        fontsize=7,
        labelcolor=INK,
        handlelength=1.5,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0.1,
        ncols=_COLUMNS,
    )


def _label(axes: Axes, title: str, y: str, pad: float = 6) -> None:
    title = textwrap.fill(title, _TITLE)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=pad)
    axes.set_ylabel(y, color=MUTED, fontsize=8)


Panels = list[Panel | Bars]
_GAIN = "selection-reward gain, points"
_PLACE = ["model", "task"]
_TERMS = {"support": "Support redistribution", "voting": "Conditional voting", "total": "Total"}


def plan_figures(analysis: Analysis) -> dict[str, Panels]:
    """Return the panels of each figure by name, if the analysis has its tables."""
    planner = _Planner(analysis)
    figures: dict[str, Panels] = {
        "figure1-accuracy-differences": list(planner.differences()),
        "figure2-population-scaling": list(planner.scaling()),
        "figure3-reward-survival": list(planner.survival()),
        "figure4-required-population": list(planner.tails()),
        "figure5-support": list(planner.support()),
    }
    return {name: panels for name, panels in figures.items() if panels}


class _Planner:
    """Makes panels from the tables of one analysis; the reference is drawn first."""

    def __init__(self, analysis: Analysis) -> None:
        self._tables = analysis.tables
        self._reference = analysis.reference

    def differences(self) -> Iterator[Bars]:
        """Yield bars of the mean accuracy differences at equal N and K, by task and model."""
        table = self._transfer()
        for method, rows in table.groupby("method", sort=False):
            series: dict[str, dict[str, Sequence[float]]] = {}
            for model, task, mean in _columns(rows, "model", "task", "mean"):
                series.setdefault(str(model), {})[str(task)] = [float(mean)]
            title = f"{method} less {self._reference or 'RandOpt'}"
            yield Bars(title, "percentage points", series)

    def scaling(self) -> Iterator[Panel]:
        """Yield a panel for each task and K."""
        for (model, task, size), rows in self._groups("population-scaling", [*_PLACE, "K"]):
            title = f"{self._title(model, task)}, K = {size}"
            series = self._series(rows, "N")
            ticks = [float(size) for size in sorted(set(rows["N"]))]
            yield Panel(title, "N, candidates", "held-out metric, %", series, ticks=ticks)

    def survival(self) -> Iterator[Panel]:
        """Yield a panel for each task; of several populations the smallest."""
        for (model, task), rows in self._groups("reward-survival", _PLACE):
            smallest = rows[rows["N"] == rows["N"].min()]
            series = self._series(smallest, "threshold")
            title = self._title(model, task)
            yield Panel(title, _GAIN, "candidates, %", series, limits=(0, 100))

    def tails(self) -> Iterator[Panel]:
        """Yield p(threshold) and the required-population ratio for each task."""
        for (model, task), rows in self._groups("required-populations", _PLACE):
            points = rows.groupby(["method", "threshold"], sort=False)["percent"]
            summary = points.agg(mean="mean", sd="std").reset_index()
            title, spans = self._title(model, task), self._cutoffs(model, task)
            series = self._series(summary, "threshold")
            spans = {
                name: span
                for name, span in spans.items()
                if rows["threshold"].min() <= span.mean <= rows["threshold"].max()
            }
            yield Panel(f"{title}: tail", _GAIN, "candidates, %", series, log_y=True, spans=spans)
        for (model, task), rows in self._groups("population-ratios", _PLACE):
            series = self._series(rows, "threshold")
            yield Panel(
                f"{self._title(model, task)}: required population",
                _GAIN,
                f"{self._reference} / method",
                series,
                log_y=True,
                level=self._level(model, task),
                without_first_colour=True,
            )

    def support(self) -> Iterator[Bars]:
        """Yield the support distribution and the decomposition of each compared method."""
        for (model, task, method), rows in self._groups(
            "decomposition-by-seed", [*_PLACE, "method"]
        ):
            chosen = self._compared(rows, model, task, method)
            population, other, size = chosen.iloc[0][["N", "reference_N", "K"]]
            title = self._title(model, task)
            shares = {
                f"{self._reference}, N = {other}": self._bins(
                    model, task, self._reference, other, size
                ),
                f"{method}, N = {population}": self._bins(model, task, method, population, size),
            }
            if all(shares.values()):
                across = f"right experts of {size}"
                yield Bars(f"{title}: support", "held-out rows, %", shares, across)
            terms = {label: chosen[name].tolist() for name, label in _TERMS.items()}
            yield Bars(f"{title}: difference", "percentage points", {"": terms})

    def _transfer(self) -> pd.DataFrame:
        published = self._tables.get("transfer")
        if published is not None:
            return published
        table = self._tables.get("budget-differences")
        if table is None:
            return pd.DataFrame(columns=["method"])
        equal = table[table["N"] == table["reference_N"]]
        for name in ("N", "K"):
            largest = equal.groupby([*_PLACE, "method"])[name].transform("max")
            equal = equal[equal[name] == largest]
        return equal

    def _cutoffs(self, model: object, task: object) -> dict[str, Span]:
        """Return the bands of the selection cutoffs at the populations of the reductions."""
        cutoffs = self._at("selection-cutoffs", model, task)
        reductions = self._reductions(model, task)
        spans = {}
        for method, population, other in _columns(reductions, "method", "N", "reference_N"):
            for name, size in ((method, population), (self._reference, other)):
                for mean, sd in _columns(_where(cutoffs, method=name, N=size), "mean", "sd"):
                    spans[str(name)] = Span(f"top {HITS} of N = {size}", mean, _known(sd))
        return spans

    def _level(self, model: object, task: object) -> Level | None:
        """Return the observed reduction; None unless one method has one."""
        reductions = self._reductions(model, task)
        if len(reductions) != 1:
            return None
        ((population, other, reduction),) = _columns(reductions, "N", "reference_N", "reduction")
        return Level(f"N = {other} / N = {population}", float(reduction))

    def _reductions(self, model: object, task: object) -> pd.DataFrame:
        """Return the observed reductions of the K that the figures show."""
        scaling = self._at("population-scaling", model, task)
        reductions = self._at("observed-reductions", model, task)
        return _where(reductions, K=_size(scaling)) if len(reductions) else reductions

    def _compared(
        self, rows: pd.DataFrame, model: object, task: object, method: object
    ) -> pd.DataFrame:
        """Return the seeds of one comparison: the observed reduction, or else the largest N."""
        at_size = _where(rows, K=_size(rows))
        reductions = _where(self._reductions(model, task), method=method)
        for population, other in _columns(reductions, "N", "reference_N"):
            observed = _where(at_size, N=population, reference_N=other)
            if len(observed):
                return observed
        largest = _where(at_size, N=at_size["N"].max())
        return _where(largest, reference_N=largest["reference_N"].max())

    def _bins(
        self, model: object, task: object, method: object, population: int, size: int
    ) -> dict[str, list[float]]:
        table = self._at("support-bins", model, task)
        bins = _columns(_where(table, method=method, N=population, K=size), "bin", "percent")
        shares: dict[str, list[float]] = {}
        for name, percent in bins:
            shares.setdefault(name, []).append(percent)
        return shares

    def _series(self, rows: pd.DataFrame, x: str) -> Series:
        """Return a line for each method, the reference first."""
        methods = sorted(dict.fromkeys(rows["method"]), key=lambda name: name != self._reference)
        return {
            str(method): [
                BandPoint(float(at), float(mean), _known(sd))
                for at, mean, sd in _columns(rows[rows["method"] == method], x, "mean", "sd")
            ]
            for method in methods
        }

    def _groups(
        self, name: str, keys: list[str]
    ) -> Iterator[tuple[tuple[object, ...], pd.DataFrame]]:
        table = self._tables.get(name)
        if table is not None:
            yield from table.groupby(keys, sort=False)

    def _at(self, name: str, model: object, task: object) -> pd.DataFrame:
        return _where(self._tables.get(name, pd.DataFrame()), model=model, task=task)

    def _title(self, model: object, task: object) -> str:
        """Return the task, with the model if there are several."""
        models = {name for table in self._tables.values() for name in table["model"]}
        return f"{task}, {str(model).rsplit('/', 1)[-1]}" if len(models) > 1 else str(task)


def _where(table: pd.DataFrame, **values: object) -> pd.DataFrame:
    """Return the rows with these values of columns; a table without rows has no columns."""
    for name, value in values.items():
        if len(table):
            table = table[table[name] == value]
    return table


def _size(rows: pd.DataFrame) -> int:
    """Return the K that figures show: that of the paper, or the largest."""
    return HITS if (rows["K"] == HITS).any() else int(rows["K"].max())


def _columns(table: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    if len(table):
        yield from table[list(names)].itertuples(index=False, name=None)


def _known(sd: float) -> float | None:
    return None if pd.isna(sd) else float(sd)
