"""The choice of the answers that a student is trained on, and their datasets.

A dataset has JSON lines, which people and other trainers can read: `prompt` and `completion`, chat
messages in TRL's format, and the provenance of the answer (training row, vote, round, expert).
"""

import json
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from modnorm.tasks.protocol import Message


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


def encode_examples(
    examples: Iterable[ChosenExample], prompt_of: Callable[[int], Sequence[Message]]
) -> list[str]:
    """Return each example as one line of JSON."""
    return [_line(example, prompt_of(example.answer.row)) for example in examples]


def merged_lines(earlier: Sequence[str], later: Sequence[str]) -> list[str]:
    """Return the lines of two datasets, without those of `later` that repeat an answer."""
    known = {_identity(line) for line in earlier}
    return [*earlier, *(line for line in later if _identity(line) not in known)]


def _line(example: ChosenExample, prompt: Sequence[Message]) -> str:
    answer = example.answer
    content = {
        "prompt": [{"role": each.role, "content": each.content} for each in prompt],
        "completion": [{"role": "assistant", "content": answer.completion}],
        "row": answer.row,
        "answer": answer.vote,
        "vote": example.vote,
        "agrees": example.agrees,
        "tokens": answer.tokens,
        "round": example.round,
        "expert": {"candidate": answer.candidate, "rank": answer.rank, "sample": answer.sample},
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _identity(line: str) -> tuple[int, str]:
    """Return training row and answer of a line."""
    content = json.loads(line)
    return content["row"], content["completion"][0]["content"].strip()
