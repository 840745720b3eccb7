"""The choice of the answers that a student is trained on."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b


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
class ChosenExample:
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
) -> tuple[ChosenExample, ...]:
    """Return the examples of a harvest, by row, the best of each row first.

    Only complete right answers count. Equal completions of a row are one example, that of the
    best-ranked expert. Answers that agree with the vote come first, then shorter ones, as in
    iterative RandOpt (sunrainyg/RandOpt, `rejection.py`).

    Memory grows with the examples, and by 8 bytes for each other right completion.
    """
    right: dict[int, _RowExamples] = {}
    for answer in answers:
        if answer.correct and not answer.truncated and (rows is None or answer.row in rows):
            example = ChosenExample(answer, votes[answer.row], round_number)
            right.setdefault(answer.row, _RowExamples()).add(example, keep)
    return tuple(example for row in sorted(right) for example in right[row].best)


class _RowExamples:
    """The best examples of one row, best first."""

    __slots__ = ("_seen", "best")

    def __init__(self) -> None:
        self.best: list[ChosenExample] = []
        self._seen = array("q")
        """Keys of all completions, ascending; a set would take eight times the memory."""

    def add(self, example: ChosenExample, keep: int) -> None:
        """Add an example unless an earlier one has its completion; keep the best ones."""
        key = _key(example.answer.completion.strip())
        place = bisect_left(self._seen, key)
        if place < len(self._seen) and self._seen[place] == key:
            return
        self._seen.insert(place, key)
        insort(self.best, example, key=_order)
        del self.best[keep:]


def _key(text: str) -> int:
    """Return 64 bits of a hash that is equal in every process, unlike Python's own."""
    return int.from_bytes(
        blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True
    )


def _order(example: ChosenExample) -> tuple[bool, int, int, int]:
    answer = example.answer
    return not example.agrees, answer.tokens, answer.rank, answer.sample


def rows_of(examples: Iterable[ChosenExample]) -> Mapping[int, int]:
    """Return the number of examples of each row that has some."""
    counts: dict[int, int] = {}
    for example in examples:
        counts[example.answer.row] = counts.get(example.answer.row, 0) + 1
    return counts
