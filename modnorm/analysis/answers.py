"""Answers of each model of a run to each row, with their judgement.

`modnorm.analysis.parquet_files` reads and writes them as `answers.parquet`.
"""

from dataclasses import dataclass

from modnorm.analysis.indices import require_index
from modnorm.errors import InvalidInputError
from modnorm.hints import one_of

BASE = -1
"""Index of the unperturbed model among the candidates."""
SPLITS = ("selection", "heldout", "development")


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One answer: one line of `answers.parquet`, whose columns have these names.

    Lines are sorted by candidate, then split in the order of `SPLITS`, then row.
    """

    candidate: int
    """int32. Index in the population, from 0; -1 is the base. In a run of an iterative method,
    `-1 - u` is the state after `u` updates."""
    split: str
    """string. `selection`, `heldout` or `development`."""
    row: int
    """int32. Index of the row in its split, from 0."""
    prompt: str | None
    """string. The prompt before the chat template (`modnorm.tasks.prompt_text`). Null where
    the task is not installed on the machine that wrote the file."""
    gold: str | None
    """string. The right answer, as the task writes it. Null where the task states none."""
    completion: str
    """string. The generated text, without the prompt."""
    vote: str | None
    """string. The vote key: the normal form of the answer. Null where there is no valid answer."""
    reward: float
    """float64. Reward of this answer."""
    correct: bool
    """bool. Whether the vote key is right."""
    tokens: int
    """int32. Generated tokens, the stop token included."""
    truncated: bool
    """bool. Whether the completion cap ended the completion."""


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """Filter of answers; None accepts every value.

    Raises:
        InvalidInputError: there is no such split, or an index is no whole number.
    """

    candidate: int | None = None
    split: str | None = None
    row: int | None = None
    wrong: bool = False
    """Whether only wrong answers are wanted."""

    def __post_init__(self) -> None:
        require_index(self.candidate, "candidate", least=None)
        require_index(self.row, "row")
        if self.split is not None and self.split not in SPLITS:
            raise InvalidInputError(
                f"there is no split {self.split!r}",
                field="split",
                remedy=one_of(self.split, SPLITS),
            )

    def wants_sheet(self, candidate: int, split: str) -> bool:
        """Return whether the filter may accept answers of a candidate on a split."""
        return self.candidate in {None, candidate} and self.split in {None, split}

    def wants(self, answer: AnswerRecord) -> bool:
        """Return whether the filter accepts an answer."""
        return (
            self.wants_sheet(answer.candidate, answer.split)
            and self.row in {None, answer.row}
            and not (self.wrong and answer.correct)
        )


ALL = AnswerFilter()
