"""Answers of each model of a run to each row, with their judgement.

`modnorm.analysis.parquet_files` reads and writes them as `answers.parquet`.
"""

from dataclasses import dataclass, fields

from modnorm.search.voting import Answer
from modnorm.tasks.row_loading import ReadableRow

BASE_INDEX = -1
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

    @classmethod
    def of(
        cls, candidate: int, split: str, question: ReadableRow, answer: Answer
    ) -> "AnswerRecord":
        """Return a candidate's answer to a question."""
        said = {each.name: getattr(answer, each.name) for each in fields(Answer)}
        return cls(candidate, split, prompt=question.prompt, gold=question.gold, **said)
