"""Support of votes: how many experts are right on a row, and how often the vote then is.

Paper, app. "Support Redistribution and Conditional Voting".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap

from modnorm.errors import InvalidInputError


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


def count_support(votes: Sequence[tuple[int, bool]], ensemble_size: int) -> Support:
    """Count rows by the number of experts that are right.

    Args:
        votes: For each row, the number of right experts, and whether the vote is right.
        ensemble_size: K.

    Raises:
        InvalidInputError: there are no rows, or more experts are right than there are.
    """
    if not votes or not all(0 <= m <= ensemble_size for m, _ in votes):
        raise InvalidInputError(
            f"each row must have 0 to {ensemble_size} right experts, and there must be a row"
        )
    rows, right = [0] * (ensemble_size + 1), [0] * (ensemble_size + 1)
    for m, correct in votes:
        rows[m] += 1
        right[m] += correct
    return Support(tuple(rows), tuple(right))


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
    """Split the accuracy of one ensemble less that of another (eq. "support_symmetric_...").

    If only one of them has rows with some m, the q(m) of the other is undefined. It is set to the
    same value, so that all of the difference counts as support.

    Raises:
        InvalidInputError: the ensembles are not of the same size.
    """
    if len(one.rows) != len(other.rows):
        raise InvalidInputError("only ensembles of the same size can be compared")
    support, voting = [], []
    for m, (p, p_other) in enumerate(zip(one.shares, other.shares, strict=True)):
        q, q_other = _both(one.conditional(m), other.conditional(m))
        support.append((p - p_other) * (q + q_other) / 2)
        voting.append((p + p_other) * (q - q_other) / 2)
    return Decomposition(math.fsum(support), math.fsum(voting))


def _both(q: float | None, other: float | None) -> tuple[float, float]:
    return (q if q is not None else other or 0.0, other if other is not None else q or 0.0)
