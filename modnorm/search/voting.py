"""Plurality votes of an ensemble, row by row (paper, app. "Decoding and tie breaking")."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol, Self


def _valid_counts(votes: Sequence[str | None]) -> Mapping[str, int]:
    """Count valid votes, in the order of the experts that gave an answer first."""
    counts: dict[str, int] = {}
    for vote in votes:
        if vote is not None:
            counts[vote] = counts.get(vote, 0) + 1
    return counts


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
        for answer, count in sorted(_valid_counts(votes).items(), key=itemgetter(1), reverse=True)
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
    """The winning vote key; None if no expert gave a valid answer, which counts as wrong."""
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
    return tuple(map(plurality, votes, correct))


def plurality(votes: Sequence[str | None], correct: Sequence[bool]) -> RowVote:
    """Count the votes on one row, best-ranked expert first; None receives no vote."""
    counts = _valid_counts(votes)
    answer = max(counts, key=counts.__getitem__, default=None)
    return RowVote(
        answer=answer,
        correct=answer is not None and correct[votes.index(answer)],
        valid=sum(counts.values()),
        support=max(counts.values(), default=0),
        correct_support=sum(correct),
    )


class RowVotes:
    """The votes of one ensemble on one row, counted while its experts answer by rank."""

    __slots__ = ("_counts", "_missing")

    def __init__(self, size: int) -> None:
        self._counts = Counter[str]()
        self._missing = size

    def add(self, vote: str | None) -> None:
        """Count the next expert's vote; None for an answer that is not valid."""
        self._missing -= 1
        if vote is not None:
            self._counts[vote] += 1

    @property
    def is_settled(self) -> bool:
        """Whether no missing answer can change the winner."""
        if not self._missing:
            return True
        # In the worst case all missing experts give one other answer, old or new. Among equal
        # numbers of votes the answer of the better-ranked expert wins, and a new one loses.
        ranked = self._counts.most_common(2)
        if not ranked or ranked[0][1] < self._missing:
            return False
        if len(ranked) == 1:
            return True
        (leader, most), (rival, votes) = ranked
        order = list(self._counts)
        return votes + self._missing < most + (order.index(leader) < order.index(rival))
