"""All analyses of a set of finished runs, as tables by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from modnorm.analysis.run_tables import GROUP, RunTables
from modnorm.analysis.seeds import (
    REFERENCE,
    Array,
    Rows,
    choose_reference,
    mean_bounds,
    over_seeds,
    paired,
    places,
    values_by_row,
    with_bounds,
)
from modnorm.analysis.support import (
    decomposition_means,
    decompositions,
    support_bin_means,
    support_by_bin,
    support_distribution,
)
from modnorm.analysis.tail import (
    population_ratios,
    required_populations,
    reward_survival,
    selection_cutoffs,
    solution_density,
    survival_grid,
)
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval

_PLACE = [*GROUP, "N", "K"]


_NO_ROWS = pd.DataFrame()


def population_scaling(ensembles: pd.DataFrame, verdicts: pd.DataFrame = _NO_ROWS) -> pd.DataFrame:
    """Return the accuracy of each method at each (N, K), in percent."""
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
    """Return how many times fewer candidates a method needs to exceed the reference."""
    pairs = paired(scaling.assign(seed=0), reference, on=["K"])
    if not len(pairs):
        return pairs
    places = ["model", "task", "K"]
    largest = pairs.groupby(places)["reference_N"].transform("max")
    ahead = pairs[(pairs["reference_N"] == largest) & (pairs["mean"] > pairs["reference_mean"])]
    least = ahead.sort_values("N").groupby([*GROUP, "K"], sort=False).head(1)
    ratio = least["reference_N"] / least["N"]
    return least[[*GROUP, "K", "N", "reference_N"]].assign(reduction=ratio)


Thresholds = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Analysis:
    """The tables of a set of runs, by name."""

    reference: str | None
    """The method that others are compared with; None with a single method."""
    tables: Mapping[str, pd.DataFrame]
    """By name; none is empty."""


def analyze(
    runs: RunTables,
    reference: str | None = None,
    survival_thresholds: Thresholds = MappingProxyType({}),
) -> Analysis:
    """Return every analysis that the tables of some runs have data for."""
    named = runs.ensembles if len(runs.ensembles) else runs.candidates
    chosen = choose_reference(named, reference)
    tables = {
        **_of_ensembles(runs, chosen),
        **_of_candidates(runs, chosen, survival_thresholds),
        **_of_votes(runs, chosen),
        "vote-agreement": runs.agreement,
        "costs": runs.costs,
        "times": runs.times,
    }
    return Analysis(chosen, {name: table for name, table in tables.items() if len(table)})


def _of_ensembles(runs: RunTables, reference: str | None) -> dict[str, pd.DataFrame]:
    if not len(runs.ensembles):
        return {}
    scaling = population_scaling(runs.ensembles, runs.verdicts)
    return {
        "population-scaling": scaling,
        "budget-differences": budget_differences(runs.ensembles, reference, runs.verdicts),
        "observed-reductions": observed_reduction(scaling, reference),
    }


def _of_candidates(
    runs: RunTables, reference: str | None, thresholds: Thresholds
) -> dict[str, pd.DataFrame]:
    candidates = runs.candidates
    if not len(candidates):
        return {}
    populations = sorted(set(runs.ensembles["N"])) if len(runs.ensembles) else []
    required = required_populations(candidates)
    survival = [
        reward_survival(of_task, thresholds.get(str(task)) or survival_grid(of_task))
        for task, of_task in candidates.groupby("task", sort=False)
    ]
    return {
        "reward-survival": pd.concat(survival, ignore_index=True),
        "solution-density": solution_density(candidates),
        "required-populations": required,
        "population-ratios": population_ratios(required, reference),
        "selection-cutoffs": selection_cutoffs(candidates, populations),
    }


def _of_votes(runs: RunTables, reference: str | None) -> dict[str, pd.DataFrame]:
    if not len(runs.votes):
        return {}
    by_seed, bins = decompositions(runs.votes, reference), support_by_bin(runs.votes)
    return {
        "support-distribution": support_distribution(runs.votes),
        "support-bins": bins,
        "support-bin-means": support_bin_means(bins),
        "decomposition-by-seed": by_seed,
        "decomposition": decomposition_means(by_seed, runs.votes),
    }
