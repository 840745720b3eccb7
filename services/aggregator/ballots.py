"""The vote of one ensemble over all held-out rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from modnorm.search.voting import plurality
from modnorm.tasks import Row, Task
from services.aggregator.codec import StoredAnswer


@dataclass(frozen=True, slots=True)
class Ballot:
    """What one expert says, in row order."""

    votes: tuple[str | None, ...]
    correct: tuple[bool, ...]

    @classmethod
    def of(cls, answers: Sequence[StoredAnswer]) -> Self:
        """Take the votes from answers in row order."""
        return cls(
            votes=tuple(answer.vote for answer in answers),
            correct=tuple(answer.correct for answer in answers),
        )


@dataclass(frozen=True, slots=True)
class RowVote:
    """The outcome of one row, with the fields of `modnorm.v1.Vote`."""

    answer: str | None
    correct: bool
    valid: int
    support: int
    correct_support: int


def count_votes(task: Task, rows: Sequence[Row], ballots: Sequence[Ballot]) -> tuple[RowVote, ...]:
    """Vote on every row.

    Args:
        task: Decides whether a voted answer is right.
        rows: The held-out rows.
        ballots: One an expert, best-ranked expert first.
    """
    return tuple(_vote(task, row, index, ballots) for index, row in enumerate(rows))


def _vote(task: Task, row: Row, index: int, ballots: Sequence[Ballot]) -> RowVote:
    tally = plurality([ballot.votes[index] for ballot in ballots])
    return RowVote(
        answer=tally.answer,
        correct=tally.answer is not None and task.is_correct(row, tally.answer),
        valid=tally.valid,
        support=tally.support,
        correct_support=sum(ballot.correct[index] for ballot in ballots),
    )
