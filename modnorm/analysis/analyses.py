"""All analyses of a set of finished runs, as tables by name.

Figures are percentages or percentage points; gains are over the unperturbed model. m is the
number of experts that are right on a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from modnorm.analysis import frames
from modnorm.analysis.frames import GROUP, PLACE, RUN
from modnorm.analysis.run import Run
from modnorm.analysis.seeds import (
    HITS,
    REFERENCE,
    TERMS,
    bin_name,
    choose_reference,
    cutoff,
    mean_bounds,
    over_seeds,
    paired,
    required_population,
    split_terms,
    support_bins,
    support_counts,
    survival,
    term_intervals,
)
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval

THRESHOLDS = tuple(0.5 * step for step in range(12))
"""Reward gains of the tail analysis (paper, fig. 4)."""
_CURVE_POINTS = 241
_OF_SEEDS = [*GROUP, "N", "K"]
_POOL = [*GROUP, "N"]
_COMPARED = [*GROUP, "N", "reference_method", "reference_N", "K"]


@dataclass(frozen=True)
class Analysis:
    """The tables of a set of runs, by name."""

    reference: str | None
    """The method that others are compared with; None with a single method."""
    tables: Mapping[str, pd.DataFrame]
    """By name; none is empty."""


def analyze(runs: Sequence[Run], reference: str | None = None) -> Analysis:
    """Return every analysis that some runs have data for."""
    frame = partial(frames.read_runs, runs, frames.name_runs(runs))
    ensembles, candidates = frame(frames.ensembles), frame(frames.candidates)
    votes = frame(frames.votes)
    chosen = choose_reference(ensembles if len(ensembles) else candidates, reference)
    tables: dict[str, pd.DataFrame] = {}
    if len(ensembles):
        ensembles = with_verdicts(ensembles, votes)
        scaling = population_scaling(ensembles)
        tables["population-scaling"] = scaling
        tables["budget-differences"] = budget_differences(ensembles, chosen)
        tables["observed-reductions"] = observed_reduction(scaling, chosen)
    if len(candidates):
        populations = sorted(set(ensembles["N"])) if len(ensembles) else []
        tables |= _tails(candidates, chosen, populations)
    # Experts of earlier versions left out rows whose votes were settled.
    if len(votes) and len(whole := votes.dropna(subset="right_experts")):
        tables |= _supports(whole, chosen)
    tables["times"] = frame(frames.times)
    return Analysis(chosen, {name: table for name, table in tables.items() if len(table)})


def _arrays(votes: pd.DataFrame, column: str) -> pd.Series:
    """Return a column as one array for each ensemble, in row order."""
    groups = votes.sort_values("row").groupby(PLACE)[column]
    found = {place: values.to_numpy(dtype=float) for place, values in groups}
    index = pd.MultiIndex.from_tuples(found, names=PLACE)
    return pd.Series(list(found.values()), index, dtype=object)


def with_verdicts(ensembles: pd.DataFrame, votes: pd.DataFrame) -> pd.DataFrame:
    """Add `verdicts`: 100 for each row whose vote is right, else 0; missing without votes."""
    if not len(votes):
        return ensembles.assign(verdicts=None)
    verdicts = 100 * _arrays(votes, "correct")
    return ensembles.join(verdicts.rename("verdicts"), on=PLACE)


def population_scaling(ensembles: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of each method at each (N, K), in percent."""

    def bounds(lines: pd.DataFrame) -> ConfidenceInterval | None:
        values = lines["accuracy"].tolist()
        if len(values) > 1:
            return mean_bounds(values, lines["verdicts"].tolist())
        verdicts = lines["verdicts"].iloc[0]
        right = int(verdicts.sum() / 100) if isinstance(verdicts, np.ndarray) else None
        interval = accuracy_interval(values[0] / 100, int(lines["rows"].iloc[0]), right)
        return interval and interval.percent

    summary = over_seeds(ensembles, _OF_SEEDS, "accuracy", bounds)
    return summary.sort_values(_OF_SEEDS, ignore_index=True)


def budget_differences(ensembles: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return the accuracy of each method less that of the reference, in points, at equal K.

    Each N of the method is compared with each N of the reference (paper, app. "Population and
    Ensemble-Size Scaling").
    """
    pairs = paired(ensembles, reference, on=["K"])
    if not len(pairs):
        return pairs
    pairs = pairs.assign(difference=pairs["accuracy"] - pairs["reference_accuracy"])

    def bounds(lines: pd.DataFrame) -> ConfidenceInterval | None:
        sides = zip(lines["verdicts"], lines["reference_verdicts"], strict=True)
        gaps = [
            one - other
            if isinstance(one, np.ndarray)
            and isinstance(other, np.ndarray)
            and len(one) == len(other)
            else None
            for one, other in sides
        ]
        return mean_bounds(lines["difference"].tolist(), gaps)

    summary = over_seeds(pairs, _COMPARED, "difference", bounds)
    return summary.sort_values(_COMPARED, ignore_index=True)


def observed_reduction(scaling: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return how many times fewer candidates a method needs to exceed the reference.

    Means of equally many seeds are compared.
    """
    pairs = paired(scaling.assign(seed=0), reference, on=["K"])
    if not len(pairs):
        return pairs
    pairs = pairs[pairs["seeds"] == pairs["reference_seeds"]]
    largest = pairs.groupby(["model", "task", "K"])["reference_N"].transform("max")
    ahead = pairs[(pairs["reference_N"] == largest) & (pairs["mean"] > pairs["reference_mean"])]
    least = ahead.sort_values("N").groupby([*GROUP, "K"], sort=False).head(1)
    ratio = least["reference_N"] / least["N"]
    return least[[*GROUP, "K", "N", "reference_N"]].assign(reduction=ratio)


def _tails(
    candidates: pd.DataFrame, reference: str | None, populations: Sequence[int]
) -> dict[str, pd.DataFrame]:
    curves = []
    for _, of_task in candidates.groupby("task", sort=False):
        gains = of_task["reward_gain"]
        grid = np.linspace(np.floor(gains.min()), np.ceil(gains.max()), _CURVE_POINTS)
        curves.append(_survival_by_seed(of_task, grid.tolist()))
    curve = over_seeds(pd.concat(curves), [*_POOL, "threshold"], "percent", lambda _: None)
    largest = candidates.groupby(GROUP)["N"].transform("max")
    pools = candidates[candidates["N"] == largest]
    shares = _survival_by_seed(pools, THRESHOLDS)
    needed = [required_population(percent / 100) for percent in shares["percent"]]
    required = shares.assign(required=pd.array(needed, dtype="Int64"))
    return {
        "reward-survival": curve.drop(columns=["lower", "upper"]),
        "required-populations": required,
        "population-ratios": _population_ratios(required, reference),
        "selection-cutoffs": _selection_cutoffs(candidates, populations),
    }


def _survival_by_seed(candidates: pd.DataFrame, thresholds: Sequence[float]) -> pd.DataFrame:
    """Return the share of candidates that gain at least each threshold, by seed."""
    rows = [
        (*pool, *point)
        for pool, gains in candidates.groupby([*RUN, "N"], sort=False)["reward_gain"]
        for point in zip(thresholds, 100 * survival(gains, thresholds), strict=True)
    ]
    return pd.DataFrame(rows, columns=[*RUN, "N", "threshold", "percent"])


def _population_ratios(required: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return the required population of the reference over that of each method."""
    pairs = paired(required, reference, on=["threshold"])
    if not len(pairs):
        return pairs
    pairs = pairs.dropna(subset=["required", "reference_required"])
    ratio = pairs["reference_required"].astype(float) / pairs["required"].astype(float)
    keys = [*GROUP, "N", "reference_method", "reference_N", "threshold"]
    return over_seeds(pairs.assign(ratio=ratio), keys, "ratio")


def _selection_cutoffs(candidates: pd.DataFrame, populations: Sequence[int]) -> pd.DataFrame:
    """Return the least reward gain among the best `HITS` of the first N candidates of a run."""
    parts = [
        candidates[(candidates["N"] >= population) & (candidates["index"] < population)]
        .groupby(RUN, sort=False)["reward_gain"]
        .agg(cutoff, selected=HITS)
        .dropna()
        .reset_index()
        .assign(N=population)
        for population in populations
    ]
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return over_seeds(found, _POOL, "reward_gain") if len(found) else found


def _supports(votes: pd.DataFrame, reference: str | None) -> dict[str, pd.DataFrame]:
    """Return p(m) and the exact decomposition of accuracy differences.

    (Paper, app. "Support Redistribution and Conditional Voting".)
    """
    experts, correct = (_arrays(votes, name) for name in ("right_experts", "correct"))
    counted = [
        support_counts(of_experts, of_rows, size)
        for of_experts, of_rows, size in zip(
            experts, correct, experts.index.get_level_values("K"), strict=True
        )
    ]
    figures = {
        "experts": experts,
        "correct": correct,
        "accuracy": [100 * (right.sum() / rows.sum()) for rows, right in counted],
        "p": [rows / rows.sum() for rows, _ in counted],
        "right": [right / rows.sum() for rows, right in counted],
    }
    ensembles = pd.DataFrame(figures, index=experts.index).reset_index()
    bins = [
        (
            *place,
            bin_name(each),
            100 * (rows[each].sum() / rows.sum()),
            100 * (right[each].sum() / rows[each].sum()) if rows[each].any() else np.nan,
        )
        for place, (rows, right) in zip(experts.index, counted, strict=True)
        for each in support_bins(place[-1])
    ]
    return {
        "support-bins": pd.DataFrame(bins, columns=[*PLACE, "bin", "percent", "right_votes"]),
        **_decompositions(ensembles, reference),
    }


def _decompositions(ensembles: pd.DataFrame, reference: str | None) -> dict[str, pd.DataFrame]:
    """Split accuracy differences to the reference in two terms: by seed, and the means."""
    names = ["accuracy", "p", "right", "experts", "correct"]
    pairs = paired(ensembles[[*PLACE, *names]], reference, on=["K"])
    if not len(pairs):
        return {}
    sides = ["p", "right", "reference_p", "reference_right"]
    terms = [split_terms(*each) for each in pairs[sides].itertuples(index=False)]
    pairs = pairs.assign(
        support=[100 * float(support) for support, _ in terms],
        voting=[100 * float(voting) for _, voting in terms],
        total=pairs["accuracy"] - pairs["reference_accuracy"],
    )
    known = {place: term_intervals(lines) for place, lines in pairs.groupby(_COMPARED, sort=False)}
    parts = [
        over_seeds(
            pairs,
            _COMPARED,
            term,
            lambda lines, term=term: known[tuple(lines.iloc[0][_COMPARED])].get(term),  # type: ignore[misc]  # a default binds it
        ).assign(term=term)
        for term in TERMS
    ]
    columns = [*_COMPARED, "term", "seeds", "mean", "sd", "lower", "upper"]
    arrays = [f"{prefix}{name}" for prefix in ("", REFERENCE) for name in names[1:]]
    return {
        "decomposition-by-seed": pairs.drop(columns=arrays),
        "decomposition": pd.concat(parts, ignore_index=True)[columns],
    }
