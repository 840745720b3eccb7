"""Plots of several runs: means over seeds, with a band of one sample SD on either side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from modnorm.analysis.drawing import INK, MUTED, RIGHT, prepare, saved

SERIES = ("#b4472e", RIGHT, "#6b8f3c", "#7d5ba6", "#c28a2b", "#4a4a4a")
"""Colours in the order of the series."""
_PANEL = (4.2, 3.2)
_ACROSS = 4
_DPI = 160


@dataclass(frozen=True, slots=True)
class BandPoint:
    """One point of a series; the SD is None with a single seed."""

    x: float
    mean: float
    sd: float | None = None


Series = Mapping[str, Sequence[BandPoint]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    series: Series
    dashed: Series | None = None
    """The paper's, drawn thin and dashed in the colours of the same names."""
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars with a marker a seed, and the sample SD."""

    title: str
    y: str
    values: Mapping[str, Sequence[float]]
    """Values of the seeds, by bar."""


def draw_panels(panels: Sequence[Panel | Bars]) -> bytes:
    """Return panels in one PNG, in rows of four; at least one."""
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
    return saved(figure)


def _draw_bands(axes: Axes, panel: Panel) -> None:
    colours = dict(zip(panel.series, SERIES * len(panel.series), strict=False))
    for name, points in panel.series.items():
        xs, means = [p.x for p in points], np.array([p.mean for p in points])
        spread = np.array([p.sd or 0.0 for p in points])
        axes.plot(
            xs, means, marker="o", markersize=3.5, linewidth=1.8, color=colours[name], label=name
        )
        axes.fill_between(
            xs, means - spread, means + spread, color=colours[name], alpha=0.18, linewidth=0
        )
    for name, points in (panel.dashed or {}).items():
        axes.plot(
            [p.x for p in points],
            [p.mean for p in points],
            linestyle=(0, (4, 3)),
            linewidth=1.1,
            color=colours.get(name, INK),
            label=f"{name}, paper",
        )
    if panel.log_y:
        axes.set_yscale("log", nonpositive="mask")
    axes.set_xlabel(panel.x, color=MUTED, fontsize=8)
    _label(axes, panel.title, panel.y)
    axes.legend(frameon=False, fontsize=7, labelcolor=INK)


def _draw_bars(axes: Axes, bars: Bars) -> None:
    for place, values in enumerate(bars.values.values()):
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        axes.bar(place, float(np.mean(values)), width=0.6, color=RIGHT, yerr=spread)
        axes.plot([place] * len(values), values, "o", color=INK, markersize=3)
    axes.set_xticks(range(len(bars.values)), list(bars.values), fontsize=8)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    _label(axes, bars.title, bars.y)


def _label(axes: Axes, title: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    axes.set_ylabel(y, color=MUTED, fontsize=8)
