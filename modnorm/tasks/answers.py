"""Tasks with one right answer a row: reward 1 for it, accuracy as the metric."""

from collections.abc import Sequence
from typing import Protocol

from modnorm.tasks.protocol import Judgement, Row


class VoteCheck(Protocol):
    """The part of a task that says which votes are right."""

    def is_correct(self, row: Row, vote: str) -> bool:
        """Whether a vote key answers the row."""


def judge_vote(task: VoteCheck, row: Row, vote: str | None) -> Judgement:
    """Return the judgement of a completion that gave a vote: reward 1 when it is right, else 0."""
    correct = vote is not None and task.is_correct(row, vote)
    return Judgement(reward=float(correct), vote=vote, correct=correct)


def accuracy(task: VoteCheck, rows: Sequence[Row], votes: Sequence[str | None]) -> float:
    """Return the fraction of rows whose vote is right; a row without a vote is wrong.

    Args:
        task: Says which vote is right.
        rows: At least one row.
        votes: One vote key a row, None where no expert gave a valid answer.
    """
    pairs = zip(rows, votes, strict=True)
    right = sum(vote is not None and task.is_correct(row, vote) for row, vote in pairs)
    return right / len(rows)
