"""Plurality votes of an ensemble, row by row (paper, app. "Decoding and tie breaking")."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self


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
    """Count the votes of one row; invalid answers (None) receive no vote.

    Args:
        votes: Vote key of each expert, best-ranked expert first. Among the answers with most
            votes the first one wins.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return Tally(answer=None, valid=0, support=0)
    answer, support = counts.most_common(1)[0]
    return Tally(answer=answer, valid=counts.total(), support=support)


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

    Args:
        votes: Vote key of each expert, best-ranked expert first; None without a vote.
        experts: Their candidate indices.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    return tuple(
        AnswerCount(answer, count, experts[votes.index(answer)])
        for answer, count in counts.most_common()
    )


class JudgedAnswer(Protocol):
    """One expert's judged answer to one row, for example `modnorm.search.answer.Answer`."""

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
    skipped: tuple[bool, ...]
    """Rows that the expert skipped because their vote was settled; its vote there is None."""

    @classmethod
    def from_answers(cls, answers: Iterable[JudgedAnswer]) -> Self:
        """Return the ballot of an expert that answered all rows, in row order."""
        pairs = [(answer.vote, answer.correct) for answer in answers]
        votes, correct = (tuple(vote for vote, _ in pairs), tuple(right for _, right in pairs))
        return cls(votes, correct, (False,) * len(pairs))

    @classmethod
    def from_partial_answers(cls, answers: Mapping[int, JudgedAnswer], rows: int) -> Self:
        """Return the ballot of an expert that skipped every row without an answer."""
        by_row = [answers.get(row) for row in range(rows)]
        return cls(
            tuple(answer.vote if answer else None for answer in by_row),
            tuple(answer is not None and answer.correct for answer in by_row),
            tuple(answer is None for answer in by_row),
        )


@dataclass(frozen=True, slots=True)
class RowVote:
    """The outcome of one row, with the fields of `modnorm.v1.Vote`.

    Skipped experts count in `skipped` only; they cannot change `answer`.
    """

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
    skipped: int = 0
    """Experts that skipped the row."""


def count_votes(ballots: Sequence[Ballot]) -> tuple[RowVote, ...]:
    """Return the vote on every row.

    Args:
        ballots: One ballot an expert, best-ranked expert first; at least one, all of equal length.
    """
    votes = zip(*(ballot.votes for ballot in ballots), strict=True)
    correct = zip(*(ballot.correct for ballot in ballots), strict=True)
    skipped = zip(*(ballot.skipped for ballot in ballots), strict=True)
    return tuple(map(_row_vote, votes, correct, skipped))


def _row_vote(
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
