"""Answers of each model of a search to each row, with their judgement."""

from dataclasses import dataclass

BASE_INDEX = -1
"""Index of the unperturbed model among the candidates."""
SPLITS = ("selection", "heldout", "development")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: one line of `answers.parquet`, whose columns have these names.

    Lines are sorted by candidate, then split in the order of `SPLITS`, then row. The four fields
    with a default are set in the file alone: before, the job of the answers has them.
    """

    candidate: int = BASE_INDEX
    """int32. Index in the population, from 0; -1 is the base. In a run of an iterative method,
    `-1 - u` is the state after `u` updates."""
    split: str = ""
    """string. `selection`, `heldout` or `development`."""
    row: int
    """int32. Index of the row in its split, from 0."""
    prompt: str | None = None
    """string. The prompt before the chat template (`modnorm.tasks.prompt_text`). Null where
    the task is not installed on the machine that wrote the file."""
    gold: str | None = None
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
