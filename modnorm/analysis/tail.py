"""The upper tails of populations: survival, density, required populations, cutoffs.

Gains are over the unperturbed model and in percentage points. Rewards are means of a few hundred
rows, so a gain may miss an equal threshold by a rounding error. Comparisons allow for one.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from modnorm.analysis.run_tables import GROUP, RUN
from modnorm.analysis.seeds import mean_bounds, over_seeds, paired, with_bounds, with_intervals
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval
from modnorm.errors import InvalidInputError

ROUNDING = 1e-9
"""Percentage points by which a gain may miss a threshold that it equals."""


def survival(points: Sequence[float], thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return the fraction of candidates that gain at least each threshold.

    With accuracies this is the solution density delta(t) (eq. "solution_density"), with selection
    rewards p(tau) (app. "Tail-Implied Population Efficiency").
    """
    if not points:
        raise InvalidInputError(
            "a survival curve needs at least one scored candidate",
            field="candidates",
            remedy="name a run in which at least one candidate was scored",
        )
    return tuple(
        sum(point >= threshold - ROUNDING for point in points) / len(points)
        for threshold in thresholds
    )


def cutoff(points: Sequence[float], selected: int) -> float:
    """Return the gain of the last of the `selected` best candidates."""
    if not 1 <= selected <= len(points):
        raise InvalidInputError(
            f"the {selected} best candidates were requested, but {len(points)} have a score",
            field="selected",
            remedy=f"choose a number from 1 to {len(points)}",
        )
    return sorted(points, reverse=True)[selected - 1]


def required_population(
    hit_rate: float, *, hits: int = 10, probability: float = 0.9
) -> int | None:
    """Return N_req: the least N with P[Bin(N, p) >= hits] >= probability.

    (App. "Tail-Implied Population Efficiency", eq. "tail_required_population".)
    """
    if hit_rate <= 0:
        return None
    # N draws hold `hits` hits exactly if the last of those comes after at most N - hits misses.
    return hits + int(stats.nbinom.ppf(probability, hits, hit_rate))


THRESHOLDS = tuple(0.5 * step for step in range(12))
"""Reward gains of the tail analysis, in percentage points (paper, fig. 4)."""
DENSITY_THRESHOLDS = (1.0, 2.0, 3.0, 5.0)
"""Accuracy gains of the solution density (paper, tab. "Solution densities")."""
HITS = 10
"""Candidates above the threshold that a required population has to contain."""
_CURVE_POINTS = 241
_POOL = [*GROUP, "N"]


def survival_grid(candidates: pd.DataFrame) -> list[float]:
    """Return thresholds between the least and the largest reward gain, rounded to whole points."""
    gains = candidates["reward_gain"]
    return list(np.linspace(np.floor(gains.min()), np.ceil(gains.max()), _CURVE_POINTS))


def survival_by_seed(
    candidates: pd.DataFrame, gain: str, thresholds: Sequence[float]
) -> pd.DataFrame:
    """Return the share of candidates that gain at least each threshold, by seed."""

    def shares(points: Sequence[float]) -> Iterable[tuple[float, float]]:
        percents = (100 * share for share in survival(points, thresholds))
        return zip(thresholds, percents, strict=True)

    return _by_pool(candidates.dropna(subset=[gain]), gain, shares, ["threshold", "percent"])


def reward_survival(candidates: pd.DataFrame, thresholds: Sequence[float]) -> pd.DataFrame:
    """Return the reward survival over seeds, in percent (paper, fig. 3)."""
    found = survival_by_seed(candidates, "reward_gain", thresholds)
    return over_seeds(found, [*_POOL, "threshold"], "percent")


def solution_density(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the solution density over seeds, in percent; empty without accuracies.

    `lower` and `upper` bound it: for one seed by the Wilson interval over its candidates, for
    several by the bootstrap over seeds and candidates.
    """
    found = survival_by_seed(candidates, "accuracy_gain", DENSITY_THRESHOLDS)
    if not len(found):
        return found
    pools = {
        place: gains.to_numpy(dtype=float)
        for place, gains in candidates.groupby([*RUN, "N"], sort=False)["accuracy_gain"]
    }

    def bounds(lines: pd.DataFrame) -> ConfidenceInterval | None:
        places = list(lines[[*RUN, "N"]].itertuples(index=False, name=None))
        values = lines["percent"].tolist()
        if len(places) == 1:
            interval = accuracy_interval(values[0] / 100, len(pools[places[0]]))
            return interval and interval.percent
        least = lines["threshold"].iloc[0] - ROUNDING
        return mean_bounds(values, [100.0 * (pools[place] >= least) for place in places])

    keys = [*_POOL, "threshold"]
    return with_bounds(over_seeds(found, keys, "percent"), found, bounds)


def required_populations(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return p(threshold) and the tail-implied population of each seed's largest population."""
    largest = candidates.groupby(GROUP)["N"].transform("max")
    return with_required(
        survival_by_seed(candidates[candidates["N"] == largest], "reward_gain", THRESHOLDS)
    )


def with_required(shares: pd.DataFrame) -> pd.DataFrame:
    """Return shares of candidates, in `percent`, with the population that each implies."""
    needed = [required_population(percent / 100, hits=HITS) for percent in shares["percent"]]
    return shares.assign(required=pd.array(needed, dtype="Int64"))


def population_ratios(required: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Return the required population of the reference over that of each method."""
    pairs = paired(required, reference, on=["threshold"])
    if not len(pairs):
        return pairs
    pairs = pairs.dropna(subset=["required", "reference_required"])
    ratio = pairs["reference_required"].astype(float) / pairs["required"].astype(float)
    keys = [*GROUP, "N", "reference_method", "reference_N", "threshold"]
    pairs = pairs.assign(ratio=ratio)
    return with_intervals(over_seeds(pairs, keys, "ratio"), pairs, "ratio")


def selection_cutoffs(candidates: pd.DataFrame, populations: Sequence[int]) -> pd.DataFrame:
    """Return the least reward gain among the best `HITS` of the first N candidates."""
    largest = candidates.groupby(GROUP)["N"].transform("max")
    pools = candidates[candidates["N"] == largest].drop(columns="N")
    parts = []
    for population in populations:
        prefix = pools[pools["index"] < population]
        sizes = prefix.groupby(RUN)["reward_gain"].transform("size")
        whole = prefix[sizes >= HITS].groupby(RUN, sort=False)["reward_gain"]
        gains = whole.agg(lambda points: cutoff(points.tolist(), HITS)).reset_index()
        parts.append(gains.assign(N=population))
    found = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if not len(found):
        return found
    return with_intervals(over_seeds(found, _POOL, "reward_gain"), found, "reward_gain")


def _by_pool(
    candidates: pd.DataFrame,
    gain: str,
    measure: Callable[[Sequence[float]], Iterable[tuple[float, float]]],
    columns: Sequence[str],
) -> pd.DataFrame:
    """Measure each population separately: rows of `RUN`, `N` and the columns of the measure."""
    rows = [
        (*pool, *values)
        for pool, points in candidates.groupby([*RUN, "N"], sort=False)[gain]
        for values in measure(points.tolist())
    ]
    return pd.DataFrame(rows, columns=[*RUN, "N", *columns])
