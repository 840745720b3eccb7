"""The plots of a run, as images that depend on its data alone."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from modnorm.analysis.document import EnsembleEntry, ResultsDocument
from modnorm.analysis.run_data import RunData
from modnorm.analysis.votes import VoteRecord
from modnorm.search.voting import RowVote

INK, MUTED, GRID = "#1f2933", "#66727f", "#e4e8ec"
BARS, RIGHT, WRONG, BASE_COLOUR = "#8fc1de", "#2a6f97", "#d9a48f", "#b4472e"
Image = Literal["png", "svg"]
Panel = Callable[[Axes], None]
"""Draws one pair of axes."""
_METADATA: Mapping[Image, dict[str, None]] = MappingProxyType(
    {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
)
_SIZE = (6.4, 3.8)
_ACROSS = 4
_DPI = 160
_DARK = {INK: "#e3e8ed", MUTED: "#9aa6b2", GRID: "#2d3640", "#ffffff": "#14191f"}


@rc_context({"text.parse_math": False})  # names are no mathematics, whatever dollars they have
def draw_panels(
    panels: Sequence[Panel], image: Image = "png", size: tuple[float, float] = _SIZE
) -> bytes:
    """Return panels of a size in inches as one image, in rows of four; at least one.

    The bytes have no date and no name of a program.
    """
    across = min(len(panels), _ACROSS)
    down = -(-len(panels) // across)
    figure = Figure(
        figsize=(size[0] * across, size[1] * down),
        dpi=_DPI,
        layout="constrained",
        facecolor="white",
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, squeeze=False)
    for axes, draw in zip(grid.flat, panels, strict=False):
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(MUTED)
        axes.tick_params(colors=MUTED, length=0, labelsize=9)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        draw(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "modnorm"}):  # else element ids are random
        figure.savefig(content, format=image, metadata=_METADATA[image])
    return content.getvalue()


def follow_theme(svg: bytes) -> bytes:
    """Return an SVG image whose neutral colours are those of the reader's light or dark theme."""
    rules = "".join(
        f'[style*="{name}: {light}"] {{ {name}: {dark} !important; }}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>\n <defs>"
    return svg.replace(b"<defs>", style.encode(), 1)


def name_axes(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=10)
    axes.set_xlabel(x, color=MUTED, fontsize=9)
    axes.set_ylabel(y, color=MUTED, fontsize=9)


def add_legend(axes: Axes) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        handlelength=1.4,
    )


# Series are ordered by size, so their colours are too.
_SEQUENCE = LinearSegmentedColormap.from_list("sizes", ["#6fb58f", "#3f8fc0", "#8a63b5"])
_LINEAR_RANGE = 12
_TICKS = 12
"""Labels that have a place side by side on the x axis."""
_APART = 0.008
"""Distance between the intervals of two series, as a share of the x axis."""
_NAMED = 12
"""Series that have a place in a legend."""


@dataclass(frozen=True, slots=True)
class PlotData:
    document: ResultsDocument
    rewards: Sequence[float]
    """Complete selection rewards, in any order."""
    votes: Sequence[RowVote | VoteRecord]
    """The votes of the largest ensemble, in any order; only `vote-support` shows them."""

    @property
    def ensembles(self) -> Sequence[EnsembleEntry]:
        """The votes, by N, then K."""
        return _ensembles(self.document)


def plot_data(run: RunData, document: ResultsDocument) -> PlotData:
    rewards = [reward for reward in run.rewards if reward is not None]
    return PlotData(document, rewards, run.votes[max(run.votes)] if run.votes else ())


def plot_names(document: ResultsDocument) -> list[str]:
    """Return the names of the plots whose data a run has."""
    ensembles = _ensembles(document)
    has_data = {
        "accuracy-by-ensemble-size": bool(ensembles),
        "accuracy-by-population": len({each["population"] for each in ensembles}) > 1,
        "reward-histogram": document["candidates"]["scored"] > 0,
        "vote-support": bool(ensembles),
    }
    return [name for name in _DRAWINGS if has_data[name]]


def draw_plots(data: PlotData) -> dict[str, bytes]:
    """Return each plot as PNG bytes by name, if the run has its data."""
    return {name: draw_plot(name, data) for name in plot_names(data.document)}


def draw_plot(name: str, data: PlotData, image: Image = "png") -> bytes:
    """Return one plot by one of the names that `plot_names` returns."""
    return draw_panels([partial(_DRAWINGS[name], data=data)], image)


def _ensembles(document: ResultsDocument) -> Sequence[EnsembleEntry]:
    """Return the votes; an iterative run has one model to test, and no ensembles."""
    return () if document["iterative"] else document["ensembles"]


def _by_size(axes: Axes, data: PlotData, *, of: "_Size", x: "_Size") -> None:
    """Draw the accuracies by one size, with a line for each of the other."""
    series: dict[int, _Points] = {}
    for each in data.ensembles:
        series.setdefault(each[of], []).append((each[x], each))
    short = _NAMES[of][0]
    lines = {
        f"{short} = {size}": sorted(series[size], key=itemgetter(0)) for size in sorted(series)
    }
    _accuracy(axes, data, lines)
    sizes = sorted({each[x] for each in data.ensembles})
    wide = _is_wide(sizes)
    if wide:
        axes.set_xscale("log")
    ticks = _apart(sizes, math.log if wide else float)
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    _, name, label = _NAMES[x]
    name_axes(axes, f"Held-out accuracy against {name}", label, "accuracy")


def _is_wide(sizes: Sequence[int]) -> bool:
    return max(sizes) > _LINEAR_RANGE * min(sizes)


def _apart(sizes: Sequence[int], place: Callable[[float], float]) -> list[int]:
    """Return the sizes whose labels do not overlap, with the largest size."""
    least = (place(sizes[-1]) - place(sizes[0])) / _TICKS
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if place(kept[0]) - place(size) >= least:
            kept.insert(0, size)
    return kept


_Size = Literal["population", "ensemble_size"]
_Points = list[tuple[int, EnsembleEntry]]
_NAMES: Mapping[_Size, tuple[str, str, str]] = MappingProxyType(
    {
        "population": ("N", "population", "N, candidates"),
        "ensemble_size": ("K", "ensemble size", "K, experts that vote"),
    }
)


def _accuracy(axes: Axes, data: PlotData, series: Mapping[str, _Points]) -> None:
    """Draw one line for each series with its intervals, and the base; the axis starts at 0."""
    colours = _SEQUENCE(np.linspace(0, 1, len(series)) if len(series) > 1 else [0.5])
    # Between two colours that are named lie those of the sizes between.
    named = list(series)[::-1][:: -(-len(series) // _NAMED)]
    sizes = sorted({x for points in series.values() for x, _ in points})
    for index, ((name, points), colour) in enumerate(zip(series.items(), colours, strict=True)):
        aside = _aside(sizes, index - (len(series) - 1) / 2)
        xs, ys = zip(*((aside(x), ensemble["metric"]) for x, ensemble in points), strict=True)
        label = name if name in named else None
        axes.plot(xs, ys, marker="o", markersize=5, linewidth=2, color=colour, label=label)
        # A metric that is not a fraction of the rows has no interval.
        bounds = [
            (x, *each["interval"])
            for x, (_, each) in zip(xs, points, strict=True)
            if each["interval"]
        ]
        if bounds:
            places, lower, upper = zip(*bounds, strict=True)
            axes.vlines(places, lower, upper, color=colour, linewidth=1.2, alpha=0.6)
    _base_line(axes.axhline, data.document["base"]["heldout_metric"])
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter(
        lambda value, _: f"{100 * value:g}%"
    )  # steps of 2.5 % are usual
    add_legend(axes)


def _aside(sizes: Sequence[int], place: float) -> Callable[[int], float]:
    """Return a function that shifts sizes to the side, so that intervals of series stay apart."""
    least, most = min(sizes), max(sizes)
    if _is_wide(sizes):
        return lambda size: size * (most / least) ** (_APART * place)
    return lambda size: size + (most - least) * _APART * place


def _base_line(draw: Callable[..., object], value: float | None) -> None:
    if value is not None:
        draw(value, color=BASE_COLOUR, linestyle=(0, (4, 3)), linewidth=1.5, label="base")


def _reward_histogram(axes: Axes, data: PlotData) -> None:
    rewards = sorted(data.rewards, reverse=True)
    axes.hist(
        rewards,
        bins=_edges(rewards),
        color=BARS,
        edgecolor="white",
        linewidth=1,
        label="candidates",
    )
    _base_line(axes.axvline, data.document["base"]["selection_reward"])
    largest = max((each["ensemble_size"] for each in data.ensembles), default=0)
    if 0 < largest <= len(rewards):
        label = f"top {largest} from here"
        axes.axvline(rewards[largest - 1], color=INK, linewidth=1.2, label=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(axes)
    name_axes(axes, "Selection reward of the candidates", "mean selection reward", "candidates")


def _edges(rewards: Sequence[float]) -> list[float]:
    """Return the edges of bins; one bin if rewards differ by rounding only."""
    count = int(np.clip(2 * np.sqrt(len(rewards)), 8, 40))
    try:
        return [float(edge) for edge in np.histogram_bin_edges(rewards, count)]
    except ValueError:  # fewer floats lie between them than bins
        return [math.nextafter(min(rewards), -math.inf), math.nextafter(max(rewards), math.inf)]


def _vote_support(axes: Axes, data: PlotData) -> None:
    largest = data.ensembles[-1]
    population, size = largest["population"], largest["ensemble_size"]
    supports = np.arange(size + 1)
    counts = {
        right: np.bincount(
            [vote.correct_support for vote in data.votes if vote.correct is right],
            minlength=size + 1,
        )
        for right in (True, False)
    }
    axes.bar(supports, counts[True], color=RIGHT, width=0.85, label="vote right")
    axes.bar(
        supports, counts[False], bottom=counts[True], color=WRONG, width=0.85, label="vote wrong"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(axes)
    name_axes(
        axes,
        f"Vote support, N = {population}, K = {size}",
        "experts whose own answer is right",
        "held-out rows",
    )


_DRAWINGS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "accuracy-by-ensemble-size": partial(_by_size, of="population", x="ensemble_size"),
        "accuracy-by-population": partial(_by_size, of="ensemble_size", x="population"),
        "reward-histogram": _reward_histogram,
        "vote-support": _vote_support,
    }
)
