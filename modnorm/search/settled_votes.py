"""Exact short-circuit of votes: the held-out rows that an expert need not answer.

A row is settled in an ensemble once no missing answer, valid or not, can change its winner. The
winner has most votes; ties go to the answer of the best-ranked expert (`modnorm.search.voting`).
A settled row stays settled. An expert skips the rows that are settled in all its ensembles. The
best expert of each population skips none, since its own accuracy is reported too.
"""

from modnorm.search.ranking import Selection
from modnorm.search.voting import Ballot

_Place = tuple[int, int]
"""Votes of an answer, and the rank of the best expert that gave it."""


class RowVotes:
    """The counted votes of one ensemble on one row.

    Args:
        size: K.
    """

    __slots__ = ("_answers", "_missing", "_most", "settled")

    def __init__(self, size: int) -> None:
        self._answers: dict[str, _Place] = {}
        self._missing = (1 << size) - 1
        """A bit for each expert whose vote is missing, best-ranked expert lowest."""
        self._most = 0
        self.settled = False
        """Whether no missing answer can change the winner."""

    def add(self, rank: int, vote: str | None) -> None:
        """Count one expert's vote; None for an answer that is not valid."""
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
        # In the worst case all missing experts give the same answer, old or new.
        rivals = [(0, best_missing)]
        rivals += [place for answer, place in self._answers.items() if answer != leader]
        worst = ((votes + missing, min(first, best_missing)) for votes, first in rivals)
        return all(_order(self._answers[leader]) < _order(rival) for rival in worst)


def _order(place: _Place) -> tuple[int, int]:
    """Return the sort key by which the winning answer comes first."""
    votes, first = place
    return -votes, first


class SettledVotes:
    """The held-out rows of an experiment whose votes are settled, while its experts answer.

    Args:
        selection: Experts of each (N, K), best first.
        rows: Number of held-out rows.
    """

    def __init__(self, selection: Selection, rows: int) -> None:
        self._rows = rows
        self._ranks = [
            {expert: rank for rank, expert in enumerate(experts)} for experts in selection.values()
        ]
        self._votes = [[RowVotes(len(ranks)) for _ in range(rows)] for ranks in self._ranks]
        self._first = {experts[0] for experts in selection.values()}
        self._counted: set[int] = set()

    @property
    def counted(self) -> frozenset[int]:
        """Experts whose ballots are counted."""
        return frozenset(self._counted)

    def add(self, expert: int, ballot: Ballot) -> None:
        """Count an expert's ballot; a repeated ballot changes nothing.

        Args:
            expert: Candidate index; the ballot of a candidate that is no expert is ignored.
            ballot: Its votes; skipped rows add none.
        """
        if expert in self._counted:
            return
        self._counted.add(expert)
        for ranks, rows in zip(self._ranks, self._votes, strict=True):
            if expert in ranks:
                for row, vote, skipped in zip(rows, ballot.votes, ballot.skipped, strict=True):
                    if not row.settled and not skipped:
                        row.add(ranks[expert], vote)

    def skippable(self, expert: int) -> tuple[int, ...]:
        """Return the rows that an expert may skip, ascending.

        Args:
            expert: Candidate index; a candidate that is no expert, or the base, skips none.
        """
        mine = [v for ranks, v in zip(self._ranks, self._votes, strict=True) if expert in ranks]
        if not mine or expert in self._first:
            return ()
        return tuple(row for row in range(self._rows) if all(votes[row].settled for votes in mine))
