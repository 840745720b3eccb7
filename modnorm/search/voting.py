"""Plurality votes of an ensemble, row by row (paper, app. "Decoding and tie breaking")."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, cast


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of one vote."""

    answer: str | None
    """The winning vote key; None if no expert gave a valid answer, which counts as wrong."""
    valid: int
    """Experts that gave a valid answer."""
    support: int
    """Experts that gave the winning answer."""


def plurality(votes: Sequence[str | None]) -> Tally:
    """Count the votes of one row; invalid answers (None) receive no vote."""
    counts = _valid_counts(votes)
    if not counts:
        return Tally(answer=None, valid=0, support=0)
    answer = max(counts, key=counts.__getitem__)
    return Tally(answer=answer, valid=sum(counts.values()), support=counts[answer])


def _valid_counts(votes: Sequence[str | None]) -> Counter[str]:
    """Count valid votes, in the order of the experts that gave an answer first."""
    counts = Counter(votes)
    counts.pop(None, None)
    return cast("Counter[str]", counts)


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """How many experts gave one answer."""

    answer: str
    """string. The vote key."""
    votes: int
    """int32. Experts that gave it."""
    expert: int
    """int32. Candidate index of the best-ranked of them."""


def count_answers(votes: Sequence[str | None], experts: Sequence[int]) -> tuple[AnswerCount, ...]:
    """Count the valid answers to one row: most votes first, so the first is the winner.

    Among equal numbers of votes the answer of the better-ranked expert comes first.
    """
    return tuple(
        AnswerCount(answer, count, experts[votes.index(answer)])
        for answer, count in _valid_counts(votes).most_common()
    )


class JudgedAnswer(Protocol):
    """One expert's judged answer to one row, for example `modnorm.search.answers.Answer`."""

    @property
    def vote(self) -> str | None:
        """Vote key; None if the answer is not valid."""

    @property
    def correct(self) -> bool:
        """Whether the vote is right."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """One expert's votes in row order."""

    votes: tuple[str | None, ...]
    correct: tuple[bool, ...]

    @classmethod
    def from_answers(cls, answers: Iterable[JudgedAnswer]) -> Self:
        """Return the ballot of an expert from its answers in row order."""
        pairs = [(answer.vote, answer.correct) for answer in answers]
        return cls(tuple(vote for vote, _ in pairs), tuple(right for _, right in pairs))


@dataclass(frozen=True, slots=True)
class RowVote:
    """The outcome of one row."""

    answer: str | None
    """The winning vote key; None if no expert gave a valid answer."""
    correct: bool
    """Whether the winner is right, as judged for the best-ranked expert that gave it."""
    valid: int
    """Experts that gave a valid answer."""
    support: int
    """Experts that gave the winning answer."""
    correct_support: int
    """Experts that were right."""


def count_votes(ballots: Sequence[Ballot]) -> tuple[RowVote, ...]:
    votes = zip(*(ballot.votes for ballot in ballots), strict=True)
    correct = zip(*(ballot.correct for ballot in ballots), strict=True)
    return tuple(map(_row_vote, votes, correct))


def _row_vote(votes: Sequence[str | None], correct: Sequence[bool]) -> RowVote:
    tally = plurality(votes)
    return RowVote(
        answer=tally.answer,
        correct=tally.answer is not None and correct[votes.index(tally.answer)],
        valid=tally.valid,
        support=tally.support,
        correct_support=sum(correct),
    )


_Place = tuple[int, int]
"""Votes of an answer, and the rank of the best expert that gave it."""


class RowVotes:
    """The counted votes of one ensemble on one row."""

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
