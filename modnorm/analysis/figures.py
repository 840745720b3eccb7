"""The figures of an analysis, in the form of the paper's figures 1 to 5."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from modnorm.analysis.analyses import Analysis
from modnorm.analysis.bands import BandPoint, Bars, Level, Panel, Series, Span
from modnorm.analysis.population_tails import HITS

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
