"""Plurality vote (paper, app. "Decoding and tie breaking")."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of one vote."""

    answer: str | None
    """The winning vote key; None when no expert gave a valid answer, which is wrong."""
    valid: int
    """Experts that gave a valid answer."""
    support: int
    """Experts that gave the winning answer."""


def plurality(votes: Sequence[str | None]) -> Tally:
    """Count the votes of one row; invalid answers (None) receive no vote.

    Args:
        votes: Vote key of each expert, best-ranked expert first: among the answers with most
            votes wins the one that comes first.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return Tally(answer=None, valid=0, support=0)
    answer, support = counts.most_common(1)[0]
    return Tally(answer=answer, valid=counts.total(), support=support)
