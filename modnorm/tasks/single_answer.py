"""Scoring for tasks with one right answer a row: reward 1 for it, accuracy as the metric."""

from collections.abc import Sequence

from modnorm.tasks.protocol import Judgement, RewardBounds, Row

RIGHT_OR_WRONG = RewardBounds(0.0, 1.0)


def judge_vote(vote: str | None, answer: str | None) -> Judgement:
    """Return the judgement of a completion: reward 1 if its vote is right, else 0."""
    correct = vote is not None and vote == answer
    return Judgement(reward=float(correct), vote=vote, correct=correct)


def accuracy(rows: Sequence[Row], correct: Sequence[bool]) -> float:
    """Return the fraction of rows whose answer is right; `rows` must not be empty."""
    return sum(is_right for _, is_right in zip(rows, correct, strict=True)) / len(rows)
