"""Accuracy against population, and accuracy differences across budgets."""

import pandas as pd

from modnorm.analysis.run_tables import GROUP
from modnorm.analysis.seeds import over_seeds, paired, with_intervals
from modnorm.analysis.uncertainty import accuracy_interval

_PLACE = [*GROUP, "N", "K"]


def population_scaling(ensembles: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of each method at each (N, K), in percent.

    Args:
        ensembles: `RunTables.ensembles`.

    Returns:
        Mean and sample SD over seeds, with `lower` and `upper`: for several seeds the
        bootstrap interval of the mean, for one seed the Wilson interval over its rows.
    """
    summary = with_intervals(over_seeds(ensembles, _PLACE, "accuracy"), ensembles, "accuracy")
    if not (summary["seeds"] == 1).any():
        return summary.sort_values(_PLACE, ignore_index=True)
    rows = ensembles.drop_duplicates(_PLACE)["rows"]
    for place, (seeds, mean, count) in enumerate(
        zip(summary["seeds"], summary["mean"], rows, strict=True)
    ):
        interval = accuracy_interval(mean / 100, int(count)) if seeds == 1 else None
        if interval is not None:
            summary.loc[place, ["lower", "upper"]] = [100 * bound for bound in interval]
    return summary.sort_values(_PLACE, ignore_index=True)


def budget_differences(ensembles: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return the accuracy of each method less that of the reference, in points, at equal K.

    Each N of the method is compared with each N of the reference (paper, app. "Population and
    Ensemble-Size Scaling").

    Args:
        ensembles: `RunTables.ensembles`.
        reference: Method of the reference.

    Returns:
        Mean, sample SD and bootstrap interval of the differences over paired seeds.
    """
    pairs = paired(ensembles, reference, on=["K"])
    if not len(pairs):
        return pairs
    keys = [*GROUP, "N", "reference_method", "reference_N", "K"]
    pairs = pairs.assign(difference=pairs["accuracy"] - pairs["reference_accuracy"])
    summary = with_intervals(over_seeds(pairs, keys, "difference"), pairs, "difference")
    return summary.sort_values(keys, ignore_index=True)


def observed_reduction(scaling: pd.DataFrame, reference: str | None, size: int) -> pd.DataFrame:
    """Return how many times fewer candidates a method needs to exceed the reference.

    Args:
        scaling: What `population_scaling` returned.
        reference: Method of the reference.
        size: K.

    Returns:
        For each model, task and method: the least `N` whose mean accuracy exceeds that of the
        largest `reference_N`, and `reduction`, their ratio. Methods that never do are absent.
    """
    at_size = scaling[scaling["K"] == size].assign(seed=0)
    pairs = paired(at_size, reference)
    if not len(pairs):
        return pairs
    places = ["model", "task"]
    largest = pairs.groupby(places)["reference_N"].transform("max")
    ahead = pairs[(pairs["reference_N"] == largest) & (pairs["mean"] > pairs["reference_mean"])]
    least = ahead.sort_values("N").groupby(GROUP, sort=False).head(1)
    return least[[*GROUP, "N", "reference_N"]].assign(reduction=least["reference_N"] / least["N"])
