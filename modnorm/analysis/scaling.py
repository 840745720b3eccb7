"""Accuracy against population, and accuracy differences across budgets."""

import pandas as pd

from modnorm.analysis.resampling import Array, Rows, mean_bounds, values_by_row
from modnorm.analysis.run_tables import GROUP
from modnorm.analysis.seeds import REFERENCE, over_seeds, paired, places, with_bounds
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval

_PLACE = [*GROUP, "N", "K"]


_NO_ROWS = pd.DataFrame()


def population_scaling(ensembles: pd.DataFrame, verdicts: pd.DataFrame = _NO_ROWS) -> pd.DataFrame:
    """Return the accuracy of each method at each (N, K), in percent.

    Args:
        ensembles: `RunTables.ensembles`.
        verdicts: `RunTables.verdicts`, if known.

    Returns:
        Mean and sample SD over seeds, with the bounds `lower` and `upper` of an interval. One seed
        has the Wilson interval over its rows. Several seeds have the bootstrap interval of the
        mean, over seeds and rows; without verdicts over seeds alone.
    """
    rows = values_by_row(verdicts, "correct")

    def bounds(lines: pd.DataFrame) -> ConfidenceInterval | None:
        values = lines["accuracy"].tolist()
        if len(values) == 1:
            right = next(rows.get(place) for place in places(lines))
            correct = None if right is None else int(right.sum())
            count = int(lines["rows"].iloc[0])
            interval = accuracy_interval(values[0] / 100, count, correct)
            return interval and interval.percent
        return mean_bounds(values, [_of(rows, place) for place in places(lines)])

    summary = with_bounds(over_seeds(ensembles, _PLACE, "accuracy"), ensembles, bounds)
    return summary.sort_values(_PLACE, ignore_index=True)


def budget_differences(
    ensembles: pd.DataFrame, reference: str | None, verdicts: pd.DataFrame = _NO_ROWS
) -> pd.DataFrame:
    """Return the accuracy of each method less that of the reference, in points, at equal K.

    Each N of the method is compared with each N of the reference (paper, app. "Population and
    Ensemble-Size Scaling").

    Args:
        ensembles: `RunTables.ensembles`.
        reference: Method of the reference.
        verdicts: `RunTables.verdicts`, if known.

    Returns:
        Mean and sample SD of the differences over paired seeds, with their bootstrap interval
        over seeds and rows; over seeds alone without verdicts.
    """
    pairs = paired(ensembles, reference, on=["K"])
    if not len(pairs):
        return pairs
    keys = [*GROUP, "N", "reference_method", "reference_N", "K"]
    pairs = pairs.assign(difference=pairs["accuracy"] - pairs["reference_accuracy"])
    rows = values_by_row(verdicts, "correct")

    def bounds(lines: pd.DataFrame) -> ConfidenceInterval | None:
        mine = [_of(rows, place) for place in places(lines)]
        theirs = [_of(rows, place) for place in places(lines, REFERENCE)]
        gaps = [
            None if one is None or other is None or len(one) != len(other) else one - other
            for one, other in zip(mine, theirs, strict=True)
        ]
        return mean_bounds(lines["difference"].tolist(), gaps)

    summary = with_bounds(over_seeds(pairs, keys, "difference"), pairs, bounds)
    return summary.sort_values(keys, ignore_index=True)


def _of(rows: Rows, place: tuple[object, ...]) -> Array | None:
    found = rows.get(place)
    return None if found is None else 100 * found


def observed_reduction(scaling: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return how many times fewer candidates a method needs to exceed the reference.

    Args:
        scaling: What `population_scaling` returned.
        reference: Method of the reference.

    Returns:
        For each model, task, method and K: the least `N` whose mean accuracy exceeds that of the
        largest `reference_N`, and `reduction`, their ratio. Methods that never do are absent.
    """
    pairs = paired(scaling.assign(seed=0), reference, on=["K"])
    if not len(pairs):
        return pairs
    places = ["model", "task", "K"]
    largest = pairs.groupby(places)["reference_N"].transform("max")
    ahead = pairs[(pairs["reference_N"] == largest) & (pairs["mean"] > pairs["reference_mean"])]
    least = ahead.sort_values("N").groupby([*GROUP, "K"], sort=False).head(1)
    ratio = least["reference_N"] / least["N"]
    return least[[*GROUP, "K", "N", "reference_N"]].assign(reduction=ratio)
