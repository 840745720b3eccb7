"""Support of votes: p(m), q(m), and the exact decomposition of accuracy differences.

m is the number of experts that are right on a row. Paper, app. "Support Redistribution and
Conditional Voting".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap

import numpy as np
import pandas as pd

from modnorm.analysis.run_tables import GROUP, RUN
from modnorm.analysis.seeds import (
    REFERENCE,
    Votes,
    over_seeds,
    paired,
    places,
    split_terms,
    term_intervals,
    values_by_row,
    with_bounds,
    with_intervals,
)
from modnorm.analysis.uncertainty import ConfidenceInterval

_PLACE = [*GROUP, "N", "K"]
_OF_RUN = [*RUN, "N", "K"]
_NO_VOTES = pd.DataFrame()
TERMS = ("support", "voting", "total")
"""Terms of the decomposition, in percentage points; the total is the sum of the other two."""


@dataclass(frozen=True, slots=True)
class Support:
    """Held-out rows by m, the number of experts that answer them right: 0 to K."""

    rows: tuple[int, ...]
    """Rows with each m."""
    right: tuple[int, ...]
    """Rows with each m whose vote is right."""

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows)

    @property
    def shares(self) -> tuple[float, ...]:
        """p(m): the fraction of rows with each m."""
        return tuple(rows / self.total for rows in self.rows)

    def share(self, counts: range) -> float:
        """Return the fraction of rows whose m is in a range: the sum of its p(m)."""
        return sum(self.rows[counts.start : counts.stop]) / self.total

    @property
    def accuracy(self) -> float:
        """Accuracy of the vote."""
        return sum(self.right) / self.total

    def conditional(self, m: int) -> float | None:
        """Return q(m), the accuracy of the vote if m experts are right; None without rows."""
        return self.right[m] / self.rows[m] if self.rows[m] else None


@dataclass(frozen=True, slots=True)
class Decomposition:
    """An accuracy difference in two terms whose sum it is; fractions."""

    support: float
    """From other numbers of experts being right."""
    voting: float
    """From the vote being right more often where as many experts are."""

    @property
    def total(self) -> float:
        """The difference of the accuracies."""
        return self.support + self.voting


def support_bins(ensemble_size: int) -> tuple[range, ...]:
    """Return the ranges of m that the paper draws (fig. 5 (a)): 0, 1, 2-4, 5-9, 10 if K is 10.

    The ranges are: none, one, fewer than half, half or more, and all of the experts. With a small
    K, empty ranges are skipped.
    """
    edges = {0, 1, 2, -(-ensemble_size // 2), ensemble_size, ensemble_size + 1}
    return tuple(starmap(range, pairwise(sorted(edges))))


def bin_name(counts: range) -> str:
    """Return a range of m as text: its first and last number, or its only number."""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"


def decompose(one: Support, other: Support) -> Decomposition:
    """Split the accuracy of one ensemble less that of another; both have the same K."""
    counts = [
        np.array(of, dtype=float) / each.total
        for each in (one, other)
        for of in (each.rows, each.right)
    ]
    return Decomposition(*map(float, split_terms(*counts)))


def supports(votes: pd.DataFrame, keys: Sequence[str]) -> Mapping[tuple[object, ...], Support]:
    """Return the support of each ensemble."""
    counts = votes.groupby([*keys, "right_experts"])["correct"].agg(["size", "sum"])
    found = {}
    for place, group in counts.groupby(level=list(keys), sort=False):
        by_m = group.droplevel(list(keys)).reindex(range(int(str(place[-1])) + 1), fill_value=0)
        found[place] = Support(tuple(by_m["size"].tolist()), tuple(by_m["sum"].tolist()))
    return found


def support_distribution(votes: pd.DataFrame) -> pd.DataFrame:
    """Return p(m) and q(m) over seeds, in percent."""
    rows = [
        (*place, m, 100 * share, None if (q := found.conditional(m)) is None else 100 * q)
        for place, found in supports(votes, _OF_RUN).items()
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
        for place, found in supports(votes, _OF_RUN).items()
        for counts in support_bins(int(str(place[-1])))
    ]
    return pd.DataFrame(rows, columns=[*RUN, "N", "K", "bin", "percent"])


def support_bin_means(by_seed: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sample SD and bootstrap interval over seeds of each bin, in percent."""
    keys = [*_PLACE, "bin"]
    return with_intervals(over_seeds(by_seed, keys, "percent"), by_seed, "percent")


def decompositions(votes: pd.DataFrame, reference: str | None) -> pd.DataFrame:
    """Split accuracy differences to the reference in support and voting, by seed."""
    found = supports(votes, _OF_RUN)
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
    """Return mean and sample SD of the terms over seeds, and their share of the whole."""
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
