"""The votes of a run, with the ballots that decided them.

`modnorm.analysis.parquet_files` reads and writes them as `votes.parquet`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from modnorm.analysis.run_data import EnsembleRow
from modnorm.search.voting import AnswerCount, Ballot, RowVote, count_answers


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """The vote of one ensemble on one held-out row: one line of `votes.parquet`.

    The columns have these names. Lines are sorted by population, ensemble size and row.
    """

    population: int
    """int32. N: the experts are the best of the first N candidates."""
    ensemble_size: int
    """int32. K: the number of experts."""
    row: int
    """int32. Index of the held-out row, from 0."""
    gold: str | None
    """string. The right answer, as in `answers.parquet`."""
    answer: str | None
    """string. The winning vote key. Null when no expert gave a valid answer."""
    correct: bool
    """bool. Whether the winning vote key is right."""
    valid: int
    """int32. Experts that gave a valid answer."""
    support: int
    """int32. Experts that gave the winning answer."""
    correct_support: int
    """int32. Experts whose own answer is right."""
    experts: tuple[int, ...]
    """list of int32. Candidate indices of the K experts, best-ranked first."""
    votes: tuple[str | None, ...]
    """list of string, parallel to `experts`. The vote key of each. Null where an expert gave no
    valid answer."""
    expert_correct: tuple[bool, ...]
    """list of bool, parallel to `experts`. Whether each is right."""
    counts: tuple[AnswerCount, ...]
    """list of struct `answer`, `votes`, `expert`. Each answer once, most votes first; among equal
    numbers of votes the answer of the better-ranked expert first. So the first is the winner."""
    tied: tuple[str, ...]
    """list of string. The answers that share the most votes, the winner first. Empty when one
    answer has more votes than all others."""
    tie_broken_by: int | None
    """int32. Candidate index of the expert whose answer won a tie: the best-ranked of those that
    gave a tied answer. Null without a tie."""


_COUNTS = tuple(field.name for field in fields(RowVote))


def vote_records(
    ensemble: EnsembleRow,
    votes: Sequence[RowVote],
    ballots: Mapping[int, Ballot],
    golds: Sequence[str | None],
) -> Iterator[VoteRecord]:
    """Yield the votes of one ensemble with each expert's ballot.

    Votes and right answers are in row order; ballots are by candidate index.
    """
    experts = ensemble.experts
    for row, vote in enumerate(votes):
        said = [ballots[expert].votes[row] for expert in experts]
        counts = count_answers(said, experts)
        tied = tuple(count.answer for count in counts if count.votes == counts[0].votes)
        is_tie = len(tied) > 1
        yield VoteRecord(
            population=ensemble.population,
            ensemble_size=ensemble.ensemble_size,
            row=row,
            **{name: getattr(vote, name) for name in _COUNTS},
            gold=golds[row],
            experts=experts,
            votes=tuple(said),
            expert_correct=tuple(ballots[expert].correct[row] for expert in experts),
            counts=counts,
            tied=tied if is_tie else (),
            tie_broken_by=counts[0].expert if is_tie else None,
        )
