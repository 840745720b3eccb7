"""Exact short-circuit of votes: which held-out rows an expert need not answer.

The vote on a row is settled in an ensemble once no answer of the experts that are missing, valid
or not, old or new, can change the winner (`modnorm.search.voting`: most votes, on ties the answer
that the best-ranked expert gave). What is settled stays so, whatever else is answered or left out.
An expert leaves out the rows that are settled in every ensemble that it is in. The first of each
population leaves out none: it is also reported alone.
"""

from modnorm.search.ballots import Ballot
from modnorm.search.ranking import Selection

_Place = tuple[int, int]
"""Votes of an answer, and the rank of the best expert that gave it."""


class _Row:
    """The votes on one row of one ensemble that are known."""

    __slots__ = ("_answers", "_missing", "_most", "settled")

    def __init__(self, size: int) -> None:
        self._answers: dict[str, _Place] = {}
        self._missing = (1 << size) - 1
        """A bit for each expert whose vote is not known, the best-ranked one the lowest."""
        self._most = 0
        self.settled = False

    def take(self, rank: int, vote: str | None) -> None:
        """Take in one expert's vote; None for an answer that is not valid."""
        self._missing &= ~(1 << rank)
        if vote is not None:
            votes, first = self._answers.get(vote, (0, rank))
            self._answers[vote] = votes + 1, min(first, rank)
            self._most = max(self._most, votes + 1)
        self.settled = self._is_settled()

    def _is_settled(self) -> bool:
        missing = self._missing.bit_count()
        if not missing or missing > self._most:
            return not missing
        leader = min(self._answers, key=lambda answer: _order(self._answers[answer]))
        best_missing = (self._missing & -self._missing).bit_length() - 1
        # The worst that can happen: all that are missing give one answer, known or new.
        rivals = [(0, best_missing)]
        rivals += [place for answer, place in self._answers.items() if answer != leader]
        worst = ((votes + missing, min(first, best_missing)) for votes, first in rivals)
        return all(_order(self._answers[leader]) < _order(rival) for rival in worst)


def _order(place: _Place) -> tuple[int, int]:
    """Sort key by which the answer that wins comes first."""
    votes, first = place
    return -votes, first


class Settling:
    """The held-out votes of an experiment while its experts answer.

    Args:
        selection: Experts of each (N, K), best first.
        rows: Number of held-out rows.
    """

    def __init__(self, selection: Selection, rows: int) -> None:
        self._rows = rows
        self._ranks = [
            {expert: rank for rank, expert in enumerate(experts)} for experts in selection.values()
        ]
        self._votes = [[_Row(len(ranks)) for _ in range(rows)] for ranks in self._ranks]
        self._alone = {experts[0] for experts in selection.values()}
        self._taken: set[int] = set()

    @property
    def taken(self) -> frozenset[int]:
        """Experts whose answers are taken in."""
        return frozenset(self._taken)

    def take(self, expert: int, ballot: Ballot) -> None:
        """Take in what an expert says; what is taken in already changes nothing.

        Args:
            expert: Candidate index; one that is no expert changes nothing either.
            ballot: Its answers; rows that it left out tell nothing.
        """
        if expert in self._taken:
            return
        self._taken.add(expert)
        for ranks, rows in zip(self._ranks, self._votes, strict=True):
            if expert in ranks:
                for row, vote, skipped in zip(rows, ballot.votes, ballot.skipped, strict=True):
                    if not row.settled and not skipped:
                        row.take(ranks[expert], vote)

    def skippable(self, expert: int) -> tuple[int, ...]:
        """Return the rows that an expert may leave out, ascending.

        Args:
            expert: Candidate index; one that is no expert, as the base, leaves out none.
        """
        mine = [v for ranks, v in zip(self._ranks, self._votes, strict=True) if expert in ranks]
        if not mine or expert in self._alone:
            return ()
        return tuple(row for row in range(self._rows) if all(votes[row].settled for votes in mine))
