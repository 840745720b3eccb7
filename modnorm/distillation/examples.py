"""The choice of the answers that a student is trained on."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HarvestedAnswer:
    """One answer of an expert to a training row."""

    row: int
    """Index of the training row."""
    completion: str
    vote: str | None
    """Vote key; None if the answer is not valid."""
    correct: bool
    """Whether the task's scorer calls it right."""
    tokens: int
    truncated: bool
    """Whether the completion cap ended it."""
    candidate: int
    """Index of the expert in its population."""
    rank: int
    """Rank of the expert by selection, from 1."""
    sample: int
    """Number of the answer among those of this expert to this row, from 0."""


@dataclass(frozen=True, slots=True)
class Example:
    """An answer that a student is trained on."""

    answer: HarvestedAnswer
    vote: str | None
    """Winning vote key of the row."""
    round: int
    """Round of its harvest, from 1."""

    @property
    def agrees(self) -> bool:
        """Whether the answer agrees with the vote."""
        return self.answer.vote == self.vote


def choose_examples(
    answers: Iterable[HarvestedAnswer],
    votes: Sequence[str | None],
    *,
    round_number: int,
    keep: int,
    rows: Collection[int] | None = None,
) -> tuple[Example, ...]:
    """Return the examples of a harvest, by row, the best of each row first.

    Only complete right answers count. Equal completions of a row are one example, that of the
    best-ranked expert. Answers that agree with the vote come first, then shorter ones, as in
    iterative RandOpt (sunrainyg/RandOpt, `rejection.py`).

    Args:
        answers: All answers of the experts, in any order.
        votes: Winning vote key of each training row.
        round_number: Round of the harvest, from 1.
        keep: Most examples of a row.
        rows: Rows that count; None for all.
    """
    right: dict[int, dict[str, HarvestedAnswer]] = {}
    for answer in answers:
        if answer.correct and not answer.truncated and (rows is None or answer.row in rows):
            by_text = right.setdefault(answer.row, {})
            text = answer.completion.strip()
            by_text[text] = min(answer, by_text.get(text, answer), key=_rank)
    return tuple(
        example
        for row in sorted(right)
        for example in _best(right[row].values(), votes[row], round_number)[:keep]
    )


def _best(
    answers: Iterable[HarvestedAnswer], vote: str | None, round_number: int
) -> list[Example]:
    examples = [Example(answer, vote, round_number) for answer in answers]
    return sorted(
        examples, key=lambda one: (not one.agrees, one.answer.tokens, *_rank(one.answer))
    )


def _rank(answer: HarvestedAnswer) -> tuple[int, int]:
    return answer.rank, answer.sample


def rows_of(examples: Iterable[Example]) -> Mapping[int, int]:
    """Return the number of examples of each row that has some."""
    counts: dict[int, int] = {}
    for example in examples:
        counts[example.answer.row] = counts.get(example.answer.row, 0) + 1
    return counts
