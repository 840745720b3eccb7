"""The vote of one ensemble over all rows (paper, app. "Decoding and tie breaking")."""

from collections.abc import Iterable, Mapping, Sequence
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
    skipped: tuple[bool, ...]
    """Rows that it left out, since the vote on them was settled; it has no vote there."""

    @classmethod
    def of(cls, answers: Iterable[JudgedAnswer]) -> Self:
        """Take the votes from answers to all rows, in row order."""
        pairs = [(answer.vote, answer.correct) for answer in answers]
        votes, correct = (tuple(vote for vote, _ in pairs), tuple(right for _, right in pairs))
        return cls(votes, correct, (False,) * len(pairs))

    @classmethod
    def of_some(cls, answers: Mapping[int, JudgedAnswer], rows: int) -> Self:
        """Take the votes from answers by row; the other rows were left out."""
        given = [answers.get(row) for row in range(rows)]
        return cls(
            tuple(answer.vote if answer else None for answer in given),
            tuple(answer is not None and answer.correct for answer in given),
            tuple(answer is None for answer in given),
        )


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
    skipped: int = 0
    """Experts that left the row out; the other counts are without them, the vote is the same."""


def count_votes(ballots: Sequence[Ballot]) -> tuple[RowVote, ...]:
    """Vote on every row.

    Args:
        ballots: One an expert, best-ranked expert first; at least one, all of the same rows.
    """
    votes = zip(*(ballot.votes for ballot in ballots), strict=True)
    correct = zip(*(ballot.correct for ballot in ballots), strict=True)
    skipped = zip(*(ballot.skipped for ballot in ballots), strict=True)
    return tuple(map(_vote, votes, correct, skipped))


def _vote(
    votes: Sequence[str | None], correct: Sequence[bool], skipped: Sequence[bool]
) -> RowVote:
    tally = plurality(votes)
    return RowVote(
        answer=tally.answer,
        correct=tally.answer is not None and correct[votes.index(tally.answer)],
        valid=tally.valid,
        support=tally.support,
        correct_support=sum(correct),
        skipped=sum(skipped),
    )
