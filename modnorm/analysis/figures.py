"""An analysis as files: tables in every format, and the paper's figures 1 to 5.

Lines are means over seeds, with a band of one sample SD on either side.
"""

import io
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from modnorm.analysis.analyses import Analysis
from modnorm.analysis.plots import INK, MUTED, RIGHT, Image, Panel, draw_panels
from modnorm.analysis.seeds import HITS
from modnorm.files import write_file

SERIES = ("#b4472e", RIGHT, "#6b8f3c", "#7d5ba6", "#c28a2b", "#4a4a4a")
"""Colours in the order of the series."""
_ALONE = SERIES[2]
"""Colour of bars that stand alone, unlike those of two compared series."""
_FILLED = 0.7
"""Share of a bar's place that the bar fills."""
_BETWEEN_SEEDS = 0.22
"""Distance between the markers of two seeds, as a share of a bar's width."""
_PANEL = (4.2, 3.2)
"""Inches of a panel."""
_TICKS = 8
_LEGEND = 66
"""Characters of a line of a legend; each entry has a handle of `_HANDLE` characters."""
_HANDLE = 8
_TITLE = 42
"""Characters of a line of a title."""
_GAIN = "selection-reward gain, points"
_PLACE = ["model", "task"]
_TERMS = {"support": "Support redistribution", "voting": "Conditional voting", "total": "Total"}


def draw_bands(  # noqa: PLR0913 - the parts of a panel; most are optional
    axes: Axes,
    rows: pd.DataFrame,
    at: str,
    labels: tuple[str, str, str],
    *,
    first: str | None = None,
    log_y: bool = False,
    level: tuple[str, float] | None = None,
    spans: Mapping[str, tuple[str, float, float]] = MappingProxyType({}),
) -> None:
    """Draw a line with a band for each `method` of rows with `mean` and `sd`, by a column `at`.

    Points with fewer `seeds` than others of the method are hollow and not joined.

    `labels` are title and axes. The method `first` has the first colour, drawn or not. `level` is
    a dashed line across, with its label; `spans` have label, mean and SD by method. Bands end at
    half of the least positive value of a logarithmic axis.
    """
    methods = sorted(dict.fromkeys(rows["method"]), key=lambda name: name != first)
    skipped = int(first is not None and first not in methods)
    colours = dict(zip(methods, (SERIES * (len(methods) + 1))[skipped:], strict=False))
    positive = [value for value in (*rows["mean"], *(level or ())[1:]) if value > 0]
    floor = min(positive, default=-math.inf) / 2 if log_y else -math.inf
    for method in methods:
        points = rows[rows["method"] == method]
        few = points[points["seeds"] < points["seeds"].max()] if "seeds" in points else points[:0]
        axes.plot(few[at], few["mean"], "o", color=colours[method], mfc="white", markersize=3.5)
        points = points.drop(few.index)
        means, spread = points["mean"].to_numpy(float), points["sd"].fillna(0).to_numpy(float)
        places, colour = points[at].to_numpy(float), colours[method]
        axes.plot(
            places, means, marker="o", markersize=3.5, linewidth=1.8, color=colour, label=method
        )
        lower, upper = np.maximum(means - spread, floor), np.maximum(means + spread, floor)
        axes.fill_between(places, lower, upper, color=colour, alpha=0.18, linewidth=0)
    for method in filter(spans.__contains__, methods):
        label, mean, sd = spans[method]
        axes.axvspan(mean - sd, mean + sd, color=colours[method], alpha=0.1, linewidth=0)
        axes.axvline(mean, color=colours[method], linestyle=":", linewidth=1.3, label=label)
    if level is not None:
        axes.axhline(level[1], color=INK, linestyle="--", linewidth=1.1, label=level[0])
    if math.isfinite(floor):  # else there is nothing above 0, which such an axis needs
        axes.set_yscale("log", nonpositive="mask")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if (rows["mean"] - rows["sd"].fillna(0)).min() < floor:
        axes.set_ylim(bottom=floor)
    _label(axes, labels)


def draw_bars(
    axes: Axes, series: Mapping[str, Mapping[str, Sequence[float]]], labels: tuple[str, str, str]
) -> None:
    """Draw bars with a marker for each seed and the sample SD, from the seeds by series and bar.

    Bars of one name stand side by side; `labels` are title and axes.
    """
    names = list(dict.fromkeys(name for values in series.values() for name in values))
    several = len(series) > 1
    colours = SERIES * len(series) if several else (_ALONE,)
    width = _FILLED / len(series)
    for index, (label, by_bar) in enumerate(series.items()):
        shift = (index - (len(series) - 1) / 2) * width
        places = [names.index(name) + shift for name in by_bar]
        axes.bar(
            places,
            [float(np.mean(values)) for values in by_bar.values()],
            width=width,
            color=colours[index],
            yerr=[np.std(one, ddof=1) if len(one) > 1 else 0.0 for one in by_bar.values()],
            error_kw={"ecolor": INK, "elinewidth": 1.1},
            label=label if several else None,
        )
        for place, values in zip(places, by_bar.values(), strict=True):
            beside = _BETWEEN_SEEDS * width * (np.arange(len(values)) - (len(values) - 1) / 2)
            axes.plot(place + beside, values, "o", color="white", mec=INK, markersize=3.2)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    axes.margins(y=0.1)
    _label(axes, labels)


def _label(axes: Axes, labels: tuple[str, str, str]) -> None:
    handles, whole = axes.get_legend_handles_labels()
    longest = _LEGEND - _HANDLE
    names = [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in whole]
    columns = _LEGEND // (_HANDLE + max(map(len, names), default=0))
    axes.set_title(
        textwrap.fill(labels[0], _TITLE),
        loc="left",
        fontsize=10,
        fontweight="bold",
        color=INK,
        pad=6 + 11 * -(-len(names) // columns),
    )
    axes.set_xlabel(labels[1], color=MUTED, fontsize=8)
    axes.set_ylabel(labels[2], color=MUTED, fontsize=8)
    if names:  # between title and axes: anywhere else the legend would hide something
        axes.legend(
            handles,
            names,
            frameon=False,
            fontsize=7,
            labelcolor=INK,
            handlelength=1.5,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0.1,
            ncols=columns,
        )


def plan_figures(analysis: Analysis) -> dict[str, list[Panel]]:
    """Return the panels of each figure by name, if the analysis has its tables."""
    planner = _Planner(analysis)
    figures: dict[str, list[Panel]] = {
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
        self._first = analysis.reference
        self._models = {name for table in self._tables.values() for name in table["model"]}

    def differences(self) -> Iterator[Panel]:
        """Yield bars of the mean accuracy differences at equal N and K, by task and model."""
        for (method,), rows in self._groups("budget-differences", ["method"]):
            equal = rows[rows["N"] == rows["reference_N"]]
            for name in ("N", "K"):
                equal = equal[equal[name] == equal.groupby(_PLACE)[name].transform("max")]
            series: dict[str, dict[str, Sequence[float]]] = {}
            for model, task, mean in _columns(equal, "model", "task", "mean"):
                series.setdefault(str(model), {})[str(task)] = [float(mean)]
            if series:
                labels = f"{method} less {self._first}", "", "percentage points"
                yield partial(draw_bars, series=series, labels=labels)

    def scaling(self) -> Iterator[Panel]:
        """Yield a panel for each task and K."""
        for (model, task, size), rows in self._groups("population-scaling", [*_PLACE, "K"]):
            title = f"{self._title(model, task)}, K = {size}"
            labels = title, "N, candidates", "held-out metric, %"

            def draw(
                axes: Axes, rows: pd.DataFrame = rows, labels: tuple[str, str, str] = labels
            ) -> None:
                draw_bands(axes, rows, "N", labels, first=self._first)
                sizes = sorted(set(rows["N"]))
                if len(sizes) <= _TICKS:
                    axes.set_xticks([float(size) for size in sizes])

            yield draw

    def survival(self) -> Iterator[Panel]:
        """Yield a panel for each task; of several populations the smallest."""
        for (model, task), rows in self._groups("reward-survival", _PLACE):
            smallest = rows[rows["N"] == rows["N"].min()]
            labels = self._title(model, task), _GAIN, "candidates, %"

            def draw(
                axes: Axes, rows: pd.DataFrame = smallest, labels: tuple[str, str, str] = labels
            ) -> None:
                draw_bands(axes, rows, "threshold", labels, first=self._first)
                axes.set_ylim(0, 100)

            yield draw

    def tails(self) -> Iterator[Panel]:
        """Yield p(threshold) and the required-population ratio for each task."""
        for (model, task), rows in self._groups("required-populations", _PLACE):
            points = rows.groupby(["method", "threshold"], sort=False)["percent"]
            least, most = rows["threshold"].min(), rows["threshold"].max()
            spans = self._cutoffs(model, task)
            yield partial(
                draw_bands,
                rows=points.agg(mean="mean", sd="std").reset_index(),
                at="threshold",
                labels=(f"{self._title(model, task)}: tail", _GAIN, "candidates, %"),
                first=self._first,
                log_y=True,
                spans={name: span for name, span in spans.items() if least <= span[1] <= most},
            )
        for (model, task), rows in self._groups("population-ratios", _PLACE):
            title = f"{self._title(model, task)}: required population"
            level = None  # the observed reduction, if one method has one
            if len(reductions := self._reductions(model, task)) == 1:
                ((size, other, ratio),) = _columns(reductions, "N", "reference_N", "reduction")
                level = f"N = {other} / N = {size}", float(ratio)
            yield partial(
                draw_bands,
                rows=rows,
                at="threshold",
                labels=(title, _GAIN, f"{self._first} / method"),
                first=self._first,
                log_y=True,
                level=level,
            )

    def support(self) -> Iterator[Panel]:
        """Yield the support distribution and the decomposition of each compared method."""
        for (model, task, method), rows in self._groups(
            "decomposition-by-seed", [*_PLACE, "method"]
        ):
            chosen = self._compared(rows, model, task, method)
            population, other, size = chosen.iloc[0][["N", "reference_N", "K"]]
            title = self._title(model, task)
            bins = _where(self._tables["support-bins"], model=model, task=task, K=size)
            shares: dict[str, dict[str, list[float]]] = {}
            for name, of in ((self._first, other), (method, population)):
                here = shares.setdefault(f"{name}, N = {of}", {})
                for bin_of, percent in _columns(_where(bins, method=name, N=of), "bin", "percent"):
                    here.setdefault(bin_of, []).append(percent)
            labels = f"{title}: support", f"right experts of {size}", "held-out rows, %"
            yield partial(draw_bars, series=shares, labels=labels)
            terms = {label: chosen[name].tolist() for name, label in _TERMS.items()}
            labels = f"{title}: difference", "", "percentage points"
            yield partial(draw_bars, series={"": terms}, labels=labels)

    def _cutoffs(self, model: object, task: object) -> dict[str, tuple[str, float, float]]:
        """Return the selection cutoffs at the populations of the reductions."""
        cutoffs = self._at("selection-cutoffs", model, task)
        spans = {}
        for method, population, other in _columns(
            self._reductions(model, task), "method", "N", "reference_N"
        ):
            for name, size in ((method, population), (self._first, other)):
                for mean, sd in _columns(_where(cutoffs, method=name, N=size), "mean", "sd"):
                    label = f"top {HITS} of N = {size}"
                    spans[str(name)] = label, mean, 0.0 if pd.isna(sd) else sd
        return spans

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

    def _groups(
        self, name: str, keys: list[str]
    ) -> Iterator[tuple[tuple[object, ...], pd.DataFrame]]:
        if name in self._tables:
            yield from self._tables[name].groupby(keys, sort=False)

    def _at(self, name: str, model: object, task: object) -> pd.DataFrame:
        return _where(self._tables.get(name, pd.DataFrame()), model=model, task=task)

    def _title(self, model: object, task: object) -> str:
        """Return the task, with the model if there are several."""
        several = len(self._models) > 1
        return f"{task}, {str(model).rsplit('/', 1)[-1]}" if several else str(task)


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


FORMATS = ("csv", "parquet", "md", "tex")
_SIGNIFICANT = ".4g"
"""Digits in Markdown and LaTeX; CSV and Parquet hold every digit."""


def write_table(directory: Path, name: str, table: pd.DataFrame) -> list[Path]:
    """Write a table in every format, each file whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = {kind: directory / f"{name}.{kind}" for kind in FORMATS}
    write_file(paths["csv"], table.to_csv(index=False).encode())
    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    write_file(paths["parquet"], parquet.getvalue())
    shown = table.astype(object).where(table.notna(), None)
    for kind, form in (("md", "pipe"), ("tex", "latex_booktabs")):
        text = shown.to_markdown(index=False, tablefmt=form, floatfmt=_SIGNIFICANT, missingval="-")
        write_file(paths[kind], f"{text}\n".encode())
    return list(paths.values())


def write_analysis(directory: Path, analysis: Analysis) -> tuple[str, ...]:
    """Write tables and figures of an analysis, over older ones; return the figures' names."""
    for name, table in analysis.tables.items():
        write_table(directory / "tables", name, table)
    return write_figures(directory / "figures", analysis)


def write_figures(directory: Path, analysis: Analysis) -> tuple[str, ...]:
    """Write the figures of an analysis as `NAME.png` and `NAME.svg`; return their names."""
    figures = plan_figures(analysis)
    for name, panels in figures.items():
        directory.mkdir(parents=True, exist_ok=True)
        for image in get_args(Image):
            write_file(directory / f"{name}.{image}", draw_panels(panels, image, _PANEL))
    return tuple(figures)
