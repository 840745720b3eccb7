"""Two runs on the same held-out rows, row by row: does the data separate them?"""

import math
from collections.abc import Mapping, Sequence
from typing import TypedDict

import pandas as pd

from modnorm.analysis.uncertainty import (
    LEVEL,
    ConfidenceInterval,
    accuracy_interval,
    holm,
    mcnemar,
    mean_interval,
)

Verdicts = Mapping[tuple[int, int], Sequence[bool]]
"""By (N, K), whether the vote on each held-out row is right."""

Metrics = Mapping[tuple[int, int], float]
"""By (N, K), the metric of the task, a fraction."""


class PairedEnsembles(TypedDict):
    """The ensembles of two runs at one (N, K), on the same rows; fractions of the rows."""

    population: int
    ensemble_size: int
    rows: int
    accuracy: float
    """Share of the rows that the first run answers right."""
    metric: float
    """Metric of the task for the first run; of balanced accuracies it is not `accuracy`."""
    other_metric: float
    interval: ConfidenceInterval | None
    other_accuracy: float
    other_interval: ConfidenceInterval | None
    difference: float
    """Row accuracy of the first run less that of the other."""
    difference_interval: ConfidenceInterval | None
    """Paired bootstrap over rows; None with a single row."""
    only_first: int
    """Rows that only the first run answers right."""
    only_other: int
    rows_only_first: list[int]
    """Indices of the rows that only the first run answers right."""
    rows_only_other: list[int]
    p_value: float
    """p-value of McNemar's exact test."""
    adjusted_p_value: float
    """p-value adjusted by Holm's method for the tests at all (N, K) of both runs."""
    separated: bool
    """Whether the adjusted test rejects, at 5 %, that both runs are equally often right."""


def verdicts_of(votes: pd.DataFrame) -> Verdicts:
    """Return whether each vote is right, from `modnorm.analysis.run.Run.vote_counts`."""
    verdicts: dict[tuple[int, int], list[bool]] = {}
    for population, size, correct in zip(
        votes["population"], votes["ensemble_size"], votes["correct"], strict=True
    ):
        verdicts.setdefault((population, size), []).append(correct)
    return verdicts


def pair_ensembles(
    first: Verdicts, other: Verdicts, metrics: Sequence[Metrics] = ({}, {})
) -> list[PairedEnsembles]:
    """Compare two runs at every (N, K) that both have, by N, then K."""
    places = sorted(first.keys() & other.keys())
    gaps = [_gaps(first[place], other[place]) for place in places]
    p_values = [mcnemar(each.count(1), each.count(-1)) for each in gaps]
    pairs = [
        _pair(place, each, sum(first[place]) / len(each), p_value, adjusted)
        for place, each, p_value, adjusted in zip(
            places, gaps, p_values, holm(p_values), strict=True
        )
    ]
    for place, pair in zip(places, pairs, strict=True):
        pair["metric"] = metrics[0].get(place, pair["accuracy"])
        pair["other_metric"] = metrics[1].get(place, pair["other_accuracy"])
    return pairs


def compares_metric(pair: PairedEnsembles) -> bool:
    """Return whether the row accuracy, which the tests compare, is the metric of the task."""
    both = (pair["metric"], pair["accuracy"]), (pair["other_metric"], pair["other_accuracy"])
    return all(math.isclose(metric, accuracy, abs_tol=1e-9) for metric, accuracy in both)


def describe_pairs(pairs: Sequence[PairedEnsembles], first: str, other: str) -> str:
    """State whether the data separates two runs at their largest (N, K), and at how many."""
    if not pairs:
        return f"{first} and {other} share no (N, K), so no rows are paired."
    last = pairs[-1]
    verdict = "separates" if last["separated"] else "does not separate"
    untested = ""
    if not compares_metric(last):
        untested = (
            f" The task's metric is {100 * last['metric']:.1f} % of {first} and "
            f"{100 * last['other_metric']:.1f} % of {other}; the tests compare row accuracy."
        )
    text = (
        f"At N={last['population']} K={last['ensemble_size']} the data {verdict} {first} and "
        f"{other}: {_difference(last)}. Of {last['rows']} rows, {last['only_first']} are right "
        f"only in {first} and {last['only_other']} only in {other} "
        f"(exact McNemar p {_p(last['p_value'])}"
    )
    if len(pairs) == 1:
        return f"{text}).{untested}"
    separated = sum(pair["separated"] for pair in pairs)
    return (
        f"{text}, adjusted for {len(pairs)} tests p {_p(last['adjusted_p_value'])}). The data "
        f"separates them at {separated} of {len(pairs)} (N, K), by Holm's method at "
        f"{100 * (1 - LEVEL):.0f} %.{untested}"
    )


def _gaps(first: Sequence[bool], other: Sequence[bool]) -> list[int]:
    """Return 1 for each row that only the first run answers right, -1 for the other, else 0."""
    return [int(one) - int(two) for one, two in zip(first, other, strict=True)]


def _pair(
    place: tuple[int, int], gaps: Sequence[int], accuracy: float, p_value: float, adjusted: float
) -> PairedEnsembles:
    rows = len(gaps)
    other_accuracy = (round(accuracy * rows) - sum(gaps)) / rows
    return PairedEnsembles(
        population=place[0],
        ensemble_size=place[1],
        rows=rows,
        accuracy=accuracy,
        metric=accuracy,
        interval=accuracy_interval(accuracy, rows),
        other_accuracy=other_accuracy,
        other_metric=other_accuracy,
        other_interval=accuracy_interval(other_accuracy, rows),
        difference=sum(gaps) / rows,
        difference_interval=mean_interval(gaps),
        only_first=gaps.count(1),
        only_other=gaps.count(-1),
        rows_only_first=[row for row, gap in enumerate(gaps) if gap == 1],
        rows_only_other=[row for row, gap in enumerate(gaps) if gap == -1],
        p_value=p_value,
        adjusted_p_value=adjusted,
        separated=adjusted < 1 - LEVEL,
    )


def _difference(pair: PairedEnsembles) -> str:
    points = 100 * pair["difference"]
    interval = pair["difference_interval"]
    unit = "points" if compares_metric(pair) else "points of row accuracy"
    text = f"{points:+.1f} {unit}" if points else "no difference"
    if interval is None:
        return text
    lower, upper = (100 * bound for bound in interval)
    return f"{text}, 95 % bootstrap interval {lower:+.1f} to {upper:+.1f}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"
