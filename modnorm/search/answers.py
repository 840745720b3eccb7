"""Answers of each model of a search to each row, with their judgement."""

from dataclasses import dataclass, fields
from operator import attrgetter

BASE_INDEX = -1
"""Index of the unperturbed model among the candidates."""
SPLITS = ("selection", "heldout", "development")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a job."""

    row: int
    """int32. Index of the row in its split, from 0."""
    completion: str
    """string. The generated text, without the prompt."""
    reward: float
    """float64. Reward of this answer."""
    vote: str | None
    """string. The vote key: the normal form of the answer. Null where there is no valid answer."""
    correct: bool
    """bool. Whether the vote key is right."""
    tokens: int
    """int32. Generated tokens, the stop token included."""
    truncated: bool
    """bool. Whether the completion cap ended the completion."""


answer_fields = attrgetter(*(field.name for field in fields(Answer)))
"""Returns the seven values of an answer, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord(Answer):
    """One line of `answers.parquet`, whose columns have these names.

    Lines are sorted by candidate, then split in the order of `SPLITS`, then row.
    """

    candidate: int
    """int32. Index in the population, from 0; -1 is the base. In a run of an iterative method,
    `-1 - u` is the state after `u` updates."""
    split: str
    """string. `selection`, `heldout` or `development`."""
    prompt: str | None
    """string. The prompt before the chat template (`modnorm.tasks.prompt_text`). Null where
    the task is not installed on the machine that wrote the file."""
    gold: str | None
    """string. The right answer, as the task writes it. Null where the task states none."""
