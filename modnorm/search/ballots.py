"""The vote of one ensemble over all rows (paper, app. "Decoding and tie breaking")."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from modnorm.search.voting import plurality


class JudgedAnswer(Protocol):
    """What one expert says to one row; `modnorm.search.scoring.Answer` is one."""

    @property
    def vote(self) -> str | None:
        """Vote key; None when there is no valid answer."""

    @property
    def correct(self) -> bool:
        """Whether the vote is right."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """What one expert says, in row order."""

    votes: tuple[str | None, ...]
    correct: tuple[bool, ...]

    @classmethod
    def of(cls, answers: Iterable[JudgedAnswer]) -> Self:
        """Take the votes from answers in row order."""
        pairs = [(answer.vote, answer.correct) for answer in answers]
        return cls(tuple(vote for vote, _ in pairs), tuple(correct for _, correct in pairs))


@dataclass(frozen=True, slots=True)
class RowVote:
    """The outcome of one row, with the fields of `modnorm.v1.Vote`."""

    answer: str | None
    """The winning vote key; None when no expert gave a valid answer."""
    correct: bool
    """Whether it is right, as judged when the best-ranked of its experts gave it."""
    valid: int
    """Experts that gave a valid answer."""
    support: int
    """Experts that gave the winning answer."""
    correct_support: int
    """Experts that were right."""


def count_votes(ballots: Sequence[Ballot]) -> tuple[RowVote, ...]:
    """Vote on every row.

    Args:
        ballots: One an expert, best-ranked expert first; at least one, all of the same rows.
    """
    votes = zip(*(ballot.votes for ballot in ballots), strict=True)
    correct = zip(*(ballot.correct for ballot in ballots), strict=True)
    return tuple(map(_vote, votes, correct))


def _vote(votes: Sequence[str | None], correct: Sequence[bool]) -> RowVote:
    tally = plurality(votes)
    return RowVote(
        answer=tally.answer,
        correct=tally.answer is not None and correct[votes.index(tally.answer)],
        valid=tally.valid,
        support=tally.support,
        correct_support=sum(correct),
    )
