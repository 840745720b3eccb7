"""Geometry of the figures, which `templates/figures.html` draws as SVG that follows the theme."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modnorm.analysis.document import EnsembleEntry, ResultsDocument

LEFT, RIGHT, TOP, BOTTOM = 56, 612, 16, 288
"""Sides of the axes, in the units of the figure, which is 640 wide and 340 high."""
SHADES = 6
"""Colours of series in the style sheet."""
_STEPS = 5
_TICKS = 8


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Marker:
    """One point of a series, with the text that a pointer shows."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """A line with its band of intervals."""

    name: str
    shade: int
    markers: tuple[Marker, ...]
    line: str
    band: str
    """Points of a polygon; empty where an interval is not known."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin of a histogram."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across the axes: a base or a threshold."""

    kind: str
    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """The content of one pair of axes."""

    caption: str
    x_name: str
    y_name: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    series: tuple[Series, ...] = ()
    bars: tuple[Bar, ...] = ()
    horizontal: tuple[Rule, ...] = ()
    vertical: tuple[Rule, ...] = ()


def accuracy_figure(document: ResultsDocument, *, by_population: bool) -> Figure | None:
    """Draw the held-out accuracy of the votes with their intervals.

    Args:
        document: The results.
        by_population: Whether N is on the x axis with a series for each K; else the reverse.

    Returns:
        None with fewer than two sizes on the x axis.
    """
    x_key, key = _population, _size
    if not by_population:
        x_key, key = key, x_key
    ensembles = document["ensembles"]
    sizes = sorted({x_key(each) for each in ensembles})
    if len(sizes) < 2:
        return None
    base = document["base"]["heldout_metric"]
    tops = [each["metric"] for each in ensembles]
    tops += [bounds[1] for each in ensembles if (bounds := each.get("interval"))]
    ceiling = _ceiling([*tops, base or 0.0])
    places = dict(zip(sizes, np.linspace(LEFT + 24, RIGHT - 24, len(sizes)).tolist(), strict=True))
    groups = sorted({key(each) for each in ensembles})
    series = tuple(
        _series(
            f"{'K' if by_population else 'N'} = {group}",
            _shade(number, len(groups)),
            sorted((each for each in ensembles if key(each) == group), key=x_key),
            lambda each: places[x_key(each)],
            ceiling,
        )
        for number, group in enumerate(groups)
    )
    name = "population N" if by_population else "ensemble size K"
    return Figure(
        caption=f"Held-out accuracy of the vote against {name}, with 95 % Wilson intervals",
        x_name="N, candidates" if by_population else "K, experts that vote",
        y_name="accuracy",
        x_ticks=_thinned([Tick(places[size], str(size)) for size in sizes]),
        y_ticks=_percent_ticks(ceiling),
        series=series,
        horizontal=()
        if base is None
        else (Rule("base", _y(base, ceiling), f"base {100 * base:.1f} %"),),
    )


def reward_figure(rewards: Sequence[float], document: ResultsDocument) -> Figure | None:
    """Draw the histogram of selection rewards with the base and the threshold of the largest K.

    Args:
        rewards: Complete selection rewards.
        document: The results.

    Returns:
        None without rewards.
    """
    if not rewards:
        return None
    rules = _thresholds(rewards, document)
    low = min([*rewards, *(value for _, value, _ in rules)])
    high = max([*rewards, *(value for _, value, _ in rules)])
    if not high - low > 1e-9:
        low, high = low - 0.5, high + 0.5
    bins = int(np.clip(2 * np.sqrt(len(rewards)), 8, 40))
    counts, edges = np.histogram(rewards, bins, (low, high))
    ceiling = _count_ceiling(int(counts.max()))
    axis = np.linspace(low, high, _STEPS + 1).tolist()
    return Figure(
        caption="Selection rewards of the candidates that were scored to the end",
        x_name="mean selection reward",
        y_name="candidates",
        x_ticks=tuple(Tick(_x(value, low, high), f"{value:.3g}") for value in axis),
        y_ticks=tuple(
            Tick(_y(value, ceiling), str(value))
            for value in range(0, ceiling + 1, max(1, ceiling // 4))
        ),
        bars=tuple(
            Bar(
                _x(left, low, high),
                _y(count, ceiling),
                _x(right, low, high) - _x(left, low, high) - 1,
                BOTTOM - _y(count, ceiling),
                f"{count} candidates from {left:.4f} to {right:.4f}",
            )
            for count, left, right in zip(
                counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True
            )
        ),
        vertical=tuple(Rule(kind, _x(value, low, high), text) for kind, value, text in rules),
    )


def _thresholds(
    rewards: Sequence[float], document: ResultsDocument
) -> list[tuple[str, float, str]]:
    """Return kind, reward and label of the base and of the last expert of the largest K."""
    base, rules = document["base"]["selection_reward"], []
    if base is not None:
        rules.append(("base", base, f"base {base:.4f}"))
    largest = max(map(_size, document["ensembles"]), default=0)
    if not document.get("iterative") and 0 < largest <= len(rewards):
        threshold = sorted(rewards, reverse=True)[largest - 1]
        rules.append(("threshold", threshold, f"top {largest} from {threshold:.4f}"))
    return rules


def _series(
    name: str,
    shade: int,
    ensembles: Sequence[EnsembleEntry],
    place: Callable[[EnsembleEntry], float],
    ceiling: float,
) -> Series:
    markers, bounds = [], []
    for each in ensembles:
        x, interval = place(each), each.get("interval")
        text = f"N={each['population']} K={each['ensemble_size']}: {100 * each['metric']:.1f} %"
        if interval is not None:
            bounds.append((x, _y(interval[0], ceiling), _y(interval[1], ceiling)))
            text += f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
        markers.append(Marker(x, _y(each["metric"], ceiling), text))
    band = [(x, upper) for x, _, upper in bounds] + [(x, low) for x, low, _ in bounds[::-1]]
    return Series(
        name=name,
        shade=shade,
        markers=tuple(markers),
        line=_points([(marker.x, marker.y) for marker in markers]),
        band=_points(band) if len(bounds) == len(markers) else "",
    )


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _shade(number: int, groups: int) -> int:
    """Return the colour of a series: series are ordered by size, so their colours are too."""
    return SHADES - 1 if groups == 1 else round(number * (SHADES - 1) / (groups - 1))


def _x(value: float, low: float, high: float) -> float:
    return LEFT + (value - low) / (high - low) * (RIGHT - LEFT)


def _y(value: float, ceiling: float) -> float:
    return BOTTOM - value / ceiling * (BOTTOM - TOP)


def _ceiling(values: Sequence[float]) -> float:
    """Return the end of an axis of accuracies: a multiple of 10 %, at most 100 %."""
    return min(1.0, max(0.1, math.ceil(max(values) * 10 - 1e-9) / 10))


def _count_ceiling(count: int) -> int:
    """Return the least multiple of four that is not below a count."""
    return max(4, -(-count // 4) * 4)


def _percent_ticks(ceiling: float) -> tuple[Tick, ...]:
    values = np.linspace(0, ceiling, _STEPS + 1).tolist()
    return tuple(Tick(_y(value, ceiling), f"{100 * value:g}%") for value in values)


def _thinned(ticks: Sequence[Tick]) -> tuple[Tick, ...]:
    """Return labels that fit side by side; the last one is among them."""
    return tuple(ticks[::-1][:: -(-len(ticks) // _TICKS)][::-1])


def _population(ensemble: EnsembleEntry) -> int:
    return ensemble["population"]


def _size(ensemble: EnsembleEntry) -> int:
    return ensemble["ensemble_size"]
