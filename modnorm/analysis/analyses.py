"""All analyses of a set of finished runs, as tables by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from modnorm.analysis.population_tails import (
    population_ratios,
    required_populations,
    reward_survival,
    selection_cutoffs,
    solution_density,
    survival_grid,
)
from modnorm.analysis.run_tables import RunTables
from modnorm.analysis.scaling import budget_differences, observed_reduction, population_scaling
from modnorm.analysis.seeds import choose_reference
from modnorm.analysis.support import (
    decomposition_means,
    decompositions,
    support_bin_means,
    support_by_bin,
    support_distribution,
)

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
    """Return every analysis that the tables of some runs have data for.

    Args:
        runs: What `tabulate_runs` or `read_inputs` returned.
        reference: Method that others are compared with; chosen by `choose_reference` when None.
        survival_thresholds: Thresholds of the survival curves by task, in percentage points; a
            grid over all gains for other tasks.

    Raises:
        InvalidInputError: no run is of the method `reference`.
    """
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
