"""Plots of several runs: means over seeds, with a band of one sample SD on either side."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from modnorm.analysis.drawing import INK, MUTED, RIGHT, Image, prepare, saved

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
