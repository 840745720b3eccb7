"""Support of votes as tables: p(m), q(m), and the exact decomposition of accuracy differences."""

import math
from collections.abc import Mapping

import pandas as pd

from modnorm.analysis.resampling import Votes, term_intervals, values_by_row
from modnorm.analysis.run_tables import GROUP, RUN
from modnorm.analysis.seeds import (
    REFERENCE,
    over_seeds,
    paired,
    places,
    with_bounds,
    with_intervals,
)
from modnorm.analysis.support import Support, bin_name, decompose, support_bins
from modnorm.analysis.uncertainty import ConfidenceInterval

_PLACE = [*GROUP, "N", "K"]
_NO_VOTES = pd.DataFrame()
TERMS = ("support", "voting", "total")
"""Terms of the decomposition, in percentage points; the total is the sum of the other two."""


def supports(votes: pd.DataFrame) -> Mapping[tuple[object, ...], Support]:
    """Return the support of each run at each (N, K).

    Args:
        votes: `RunTables.votes`.

    Returns:
        By the columns of `RUN`, N and K.
    """
    counts = votes.groupby([*RUN, "N", "K", "right_experts"])["correct"].agg(["size", "sum"])
    found = {}
    for place, group in counts.groupby(level=[*RUN, "N", "K"], sort=False):
        by_m = group.droplevel([*RUN, "N", "K"]).reindex(
            range(int(str(place[-1])) + 1), fill_value=0
        )
        found[place] = Support(tuple(by_m["size"].tolist()), tuple(by_m["sum"].tolist()))
    return found


def support_distribution(votes: pd.DataFrame) -> pd.DataFrame:
    """Return p(m) and q(m) over seeds, in percent.

    Args:
        votes: `RunTables.votes`.

    Returns:
        By (N, K) and m: mean and sample SD of p(m) and q(m). p(m) is the share of held-out rows
        with m right experts. q(m) is the accuracy of the vote on these rows. A seed without such
        rows has no q(m).
    """
    rows = [
        (*place, m, 100 * share, None if (q := found.conditional(m)) is None else 100 * q)
        for place, found in supports(votes).items()
        for m, share in enumerate(found.shares)
    ]
    table = pd.DataFrame(rows, columns=[*RUN, "N", "K", "m", "p", "q"]).astype({"q": float})
    parts = [
        over_seeds(table, [*_PLACE, "m"], name)
        .drop(columns=["min", "max"])
        .rename(columns={"seeds": f"{name}_seeds", "mean": f"{name}_mean", "sd": f"{name}_sd"})
        for name in ("p", "q")
    ]
    return parts[0].merge(parts[1], on=[*_PLACE, "m"])


def support_by_bin(votes: pd.DataFrame) -> pd.DataFrame:
    """Return the share of held-out rows by bin of right experts and seed, in percent (fig. 5)."""
    rows = [
        (*place, bin_name(counts), 100 * found.share(counts))
        for place, found in supports(votes).items()
        for counts in support_bins(int(str(place[-1])))
    ]
    return pd.DataFrame(rows, columns=[*RUN, "N", "K", "bin", "percent"])


def support_bin_means(by_seed: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sample SD and bootstrap interval over seeds of each bin, in percent.

    Args:
        by_seed: What `support_by_bin` returned.
    """
    keys = [*_PLACE, "bin"]
    return with_intervals(over_seeds(by_seed, keys, "percent"), by_seed, "percent")


def decompositions(votes: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Split accuracy differences to the reference in support and voting, by seed.

    Args:
        votes: `RunTables.votes`.
        reference: Method of the reference.

    Returns:
        At equal K, for each N against each `reference_N`: `accuracy`, `reference_accuracy` and
        the terms, in percentage points; `residual` is the difference less the sum of the terms.
    """
    found = supports(votes)
    table = pd.DataFrame(list(found), columns=[*RUN, "N", "K"]).assign(
        accuracy=[100 * one.accuracy for one in found.values()],
        support_counts=pd.Series(list(found.values()), dtype=object),
    )
    pairs = paired(table, reference, on=["K"])
    if not len(pairs):
        return pairs
    both = zip(pairs["support_counts"], pairs["reference_support_counts"], strict=True)
    terms = [decompose(one, other) for one, other in both]
    total = pairs["accuracy"] - pairs["reference_accuracy"]
    return pairs.drop(columns=["support_counts", "reference_support_counts"]).assign(
        support=[100 * term.support for term in terms],
        voting=[100 * term.voting for term in terms],
        total=total,
        residual=total - [100 * term.total for term in terms],
    )


def decomposition_means(by_seed: pd.DataFrame, votes: pd.DataFrame = _NO_VOTES) -> pd.DataFrame:
    """Return mean and sample SD of the terms over seeds, and their share of the mean difference.

    Args:
        by_seed: What `decompositions` returned.
        votes: `RunTables.votes`, if known.

    Returns:
        `lower` and `upper` bound each mean by the bootstrap over seeds and rows; without votes
        they are missing.
    """
    if not len(by_seed):
        return by_seed
    keys = [*GROUP, "N", "reference_method", "reference_N", "K"]
    known = _votes_by_place(votes)
    groups = by_seed.groupby(keys, sort=False)
    bounds = {place: _term_bounds(lines, known) for place, lines in groups}
    parts = [
        with_bounds(
            over_seeds(by_seed, keys, term).assign(term=term),
            by_seed,
            lambda lines, term=term: bounds[tuple(lines.iloc[0][keys])].get(term),  # type: ignore[misc]
        )
        for term in TERMS
    ]
    summary = pd.concat(parts, ignore_index=True)
    totals = by_seed.groupby(keys)["total"].mean().replace(0, math.nan).rename("whole")
    summary = summary.merge(totals.reset_index(), on=keys)
    share = summary["mean"] / summary["whole"]
    return summary.assign(share_of_total=share)[
        [*keys, "term", "seeds", "mean", "sd", "lower", "upper", "share_of_total"]
    ]


def _votes_by_place(votes: pd.DataFrame) -> Mapping[tuple[object, ...], Votes]:
    experts, correct = (values_by_row(votes, name) for name in ("right_experts", "correct"))
    return {place: Votes(experts[place], correct[place]) for place in experts}


def _term_bounds(
    lines: pd.DataFrame, known: Mapping[tuple[object, ...], Votes]
) -> Mapping[str, ConfidenceInterval]:
    """Return the intervals of the terms in points; none unless both ensembles have equal rows."""
    pairs = []
    for place, other in zip(places(lines), places(lines, REFERENCE), strict=True):
        mine, theirs = known.get(place), known.get(other)
        if mine is None or theirs is None or len(mine.correct) != len(theirs.correct):
            return {}
        pairs.append((mine, theirs))
    if len({len(mine.correct) for mine, _ in pairs}) > 1:
        return {}
    return {name: found.percent for name, found in term_intervals(pairs).items()}
