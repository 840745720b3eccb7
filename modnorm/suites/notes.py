"""Notes under tables: orders of methods, chosen settings, shares of a difference."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from modnorm.analysis.tail import ROUNDING as SAME
from modnorm.suites.built_tables import BuiltTable, FigureRow
from modnorm.suites.table_specs import DevelopmentTable, Labels, MetricTable


def contrast_notes(
    spec: MetricTable, table: BuiltTable, columns: Iterable[Labels]
) -> tuple[str, ...]:
    """State in how many places one option is above each other one, here and in the paper."""
    if spec.contrast is None:
        return ()
    at = spec.axes.index(spec.contrast.axis)
    figures = pd.DataFrame(
        [
            (
                labels[at],
                " / ".join((*labels[:at], *labels[at + 1 :])),
                figure.mean if figure.is_complete else None,
                figure.paper.mean if figure.paper else None,
            )
            for row in table.rows
            for column, figure in zip(columns, row.figures, strict=False)
            for labels in [(*row.labels, *column)]
        ],
        columns=["option", "place", "ours", "paper"],
    ).astype({"ours": float, "paper": float})
    of = figures[figures["option"] == spec.contrast.of]
    return tuple(
        f"{spec.contrast.of} above {other}: "
        + _compare(
            of.merge(figures[figures["option"] == other], on="place", suffixes=("", "_other"))
        )
        for other in spec.contrast.against
    )


def _compare(both: pd.DataFrame) -> str:
    """State in how many places the first option is above the second one."""
    ours, paper = (_order(both[name] - both[f"{name}_other"]) for name in ("ours", "paper"))
    differing = both["place"][ours.notna() & paper.notna() & (ours != paper)]
    text = f"{(ours > 0).sum()} of {ours.count()} places{_ties(ours)}"
    if paper.count():
        text += f"; in the paper {(paper > 0).sum()} of {paper.count()}{_ties(paper)}"
    if len(differing):
        text += f"; another order than the paper's: {', '.join(differing.replace('', 'here'))}"
    elif paper.count() and ours.count():
        text += "; the same order as the paper's wherever both are known"
    return text


def _order(differences: "pd.Series[float]") -> "pd.Series[float]":
    return differences.mask(differences.abs() <= SAME, 0).transform(np.sign)


def _ties(order: "pd.Series[float]") -> str:
    ties = (order == 0).sum()
    return f", {ties} tied" if ties else ""


def choice_notes(spec: DevelopmentTable, table: BuiltTable) -> tuple[str, ...]:
    """State which setting of each method is chosen, once all trials of the method are finished."""
    means = pd.DataFrame(
        [
            (*row.labels, *(figure.mean if figure.is_complete else None for figure in row.figures))
            for row in table.rows
        ],
        columns=["method", "setting", "first", "best", "last"],
    )
    trials = means.groupby("method", sort=False)
    return tuple(
        _choice(spec, str(method), rows) for method, rows in trials if rows.notna().all(axis=None)
    )


def _choice(spec: DevelopmentTable, method: str, trials: pd.DataFrame) -> str:
    within = math.inf if spec.stable_within is None else spec.stable_within
    is_stable = trials["last"] >= trials["first"] - within - SAME
    stable = trials[is_stable]
    best = stable["setting"][stable[spec.by] >= stable[spec.by].max() - SAME]
    text = "no stable trial"
    if len(best):
        tied = f", the first of {len(best)} that are tied" if len(best) > 1 else ""
        text = f"{best.iloc[0]} is chosen, by the {spec.by} state{tied}"
    if not is_stable.all():
        text += f"; not stable: {', '.join(trials['setting'][~is_stable])}"
    if method in spec.adopted:
        text += f"; the paper adopted {spec.adopted[method]}"
    return f"{method}: {text}"


def share_notes(mean: FigureRow) -> tuple[str, ...]:
    """State in percent which part of a mean difference is support, and which is voting."""
    ours = _shares(*(figure.mean for figure in mean.figures))
    paper = _shares(*(figure.paper.mean if figure.paper else None for figure in mean.figures))
    if not ours:
        return ()
    in_the_paper = f"; in the paper {paper}" if paper else ""
    return (
        f"{mean.labels[0]}: of the mean difference support and voting are {ours}{in_the_paper}",
    )


def _shares(support: float | None, voting: float | None, total: float | None) -> str:
    if support is None or voting is None or total is None or abs(total) < SAME:
        return ""
    return f"{100 * support / total:z.0f} % and {100 * voting / total:z.0f} %"
