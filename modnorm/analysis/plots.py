"""The plots of a run, as PNG bytes that depend on the run's data alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from modnorm.analysis.drawing import BARS, BASE, INK, RIGHT, WRONG, add_legend, name_axes, png
from modnorm.analysis.run_data import EnsembleRow, RunData, VoteRow
from modnorm.analysis.uncertainty import accuracy_interval

# Series are ordered by size, so their colours are too.
_SEQUENCE = LinearSegmentedColormap.from_list("sizes", ["#8fc1de", "#2a6f97", "#0b2f4a"])
_LINEAR_RANGE = 12
_TICKS = 12
"""Labels that have a place side by side on the x axis."""
_NAMED = 12
"""Series that have a place in a legend."""


def draw_plots(run: RunData) -> dict[str, bytes]:
    """Return the PNG of every plot that the run has data for, by name."""
    voted = not run.states  # an iterative run has one model to test, and no ensembles
    drawings: Mapping[str, tuple[bool, Callable[..., None]]] = {
        "accuracy-by-ensemble-size": (voted and bool(run.ensembles), _by_ensemble_size),
        "accuracy-by-population": (voted and len(run.prefixes) > 1, _by_population),
        "reward-histogram": (bool(run.order), _reward_histogram),
        "vote-support": (voted and bool(_whole_votes(run)), _vote_support),
    }
    return {
        name: png(partial(draw, run=run))
        for name, (has_data, draw) in drawings.items()
        if has_data
    }


def _by_population(axes: Axes, run: RunData) -> None:
    groups = _grouped(run.ensembles, by=lambda e: e.ensemble_size, x=lambda e: e.population)
    _accuracy(axes, run, {f"K = {size}": points for size, points in groups.items()})
    _size_axis(axes, run.prefixes)
    name_axes(axes, "Held-out accuracy against population", "N, candidates", "accuracy")


def _by_ensemble_size(axes: Axes, run: RunData) -> None:
    groups = _grouped(run.ensembles, by=lambda e: e.population, x=lambda e: e.ensemble_size)
    _accuracy(axes, run, {f"N = {size}": points for size, points in groups.items()})
    _size_axis(axes, sorted({ensemble.ensemble_size for ensemble in run.ensembles}))
    name_axes(axes, "Held-out accuracy against ensemble size", "K, experts that vote", "accuracy")


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Tick the sizes; a logarithmic axis keeps wide ranges apart."""
    wide = sizes[-1] > _LINEAR_RANGE * sizes[0]
    if wide:
        axes.set_xscale("log")
    ticks = _apart(sizes, math.log if wide else float)
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()


def _apart(sizes: Sequence[int], place: Callable[[float], float]) -> list[int]:
    """Return the largest size, and of the others those whose labels do not run into the next."""
    least = (place(sizes[-1]) - place(sizes[0])) / _TICKS
    kept = [sizes[-1]]
    for size in reversed(sizes[:-1]):
        if place(kept[0]) - place(size) >= least:
            kept.insert(0, size)
    return kept


_Points = list[tuple[int, EnsembleRow]]


def _grouped(
    ensembles: Sequence[EnsembleRow],
    *,
    by: Callable[[EnsembleRow], int],
    x: Callable[[EnsembleRow], int],
) -> dict[int, _Points]:
    groups: dict[int, _Points] = {}
    for ensemble in ensembles:
        groups.setdefault(by(ensemble), []).append((x(ensemble), ensemble))
    return {key: sorted(groups[key], key=itemgetter(0)) for key in sorted(groups)}


def _accuracy(axes: Axes, run: RunData, series: Mapping[str, _Points]) -> None:
    """Draw one line a series with its intervals, and the base; the axis starts at 0."""
    colours = _SEQUENCE(np.linspace(0, 1, len(series)) if len(series) > 1 else [0.5])
    # Between two colours that are named lie those of the sizes between.
    named = list(series)[::-1][:: -(-len(series) // _NAMED)]
    for (name, points), colour in zip(series.items(), colours, strict=True):
        xs, ys = zip(*((x, ensemble.metric) for x, ensemble in points), strict=True)
        label = name if name in named else None
        axes.plot(xs, ys, marker="o", markersize=5, linewidth=2, color=colour, label=label)
        _band(axes, points, colour)
    _base_line(axes.axhline, run.base.heldout_metric)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter(_percent)
    add_legend(axes)


def _band(axes: Axes, points: _Points, colour: str) -> None:
    """Shade the intervals of a series; a metric that is no fraction of the rows has none."""
    bounds = [accuracy_interval(each.metric, each.rows) for _, each in points]
    known = [interval for interval in bounds if interval is not None]
    if len(known) == len(points):
        lower, upper = zip(*known, strict=True)
        axes.fill_between(
            [x for x, _ in points], lower, upper, color=colour, alpha=0.1, linewidth=0
        )


def _percent(value: float, _position: float) -> str:
    """Label a tick with all its digits: steps of 2.5 % are usual."""
    return f"{100 * value:g}%"


def _base_line(draw: Callable[..., object], value: float | None) -> None:
    if value is not None:
        draw(value, color=BASE, linestyle=(0, (4, 3)), linewidth=1.5, label="base")


def _reward_histogram(axes: Axes, run: RunData) -> None:
    rewards = sorted((reward for reward in run.rewards if reward is not None), reverse=True)
    stopped = len(run.stopped)
    label = f"scored to the end\n({stopped} stopped, not shown)" if stopped else "candidates"
    axes.hist(
        rewards, bins=_edges(rewards), color=BARS, edgecolor="white", linewidth=1, label=label
    )
    _base_line(axes.axvline, run.base.selection_reward)
    largest = max((ensemble.ensemble_size for ensemble in run.ensembles), default=0)
    if not run.states and 0 < largest <= len(rewards):
        label = f"top {largest} from here"
        axes.axvline(rewards[largest - 1], color=INK, linewidth=1.2, label=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    add_legend(axes)
    name_axes(axes, "Selection reward of the candidates", "mean selection reward", "candidates")


def _edges(rewards: Sequence[float]) -> list[float]:
    """Return where bins begin and end: one bin where rewards differ by roundings alone."""
    count = int(np.clip(2 * np.sqrt(len(rewards)), 8, 40))
    try:
        return [float(edge) for edge in np.histogram_bin_edges(rewards, count)]
    except ValueError:  # fewer floats lie between them than bins
        return [math.nextafter(min(rewards), -math.inf), math.nextafter(max(rewards), math.inf)]


def _whole_votes(run: RunData) -> Sequence[VoteRow]:
    """Return the votes of the largest ensemble; none where counts of them are partial."""
    votes = run.votes[max(run.votes)] if run.votes else ()
    return () if any(vote.skipped for vote in votes) else votes


def _vote_support(axes: Axes, run: RunData) -> None:
    population, size = max(run.votes)
    votes = _whole_votes(run)
    supports = np.arange(size + 1)
    counts = {
        right: np.bincount(
            [v.correct_support for v in votes if v.correct is right], minlength=size + 1
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
