"""A judged answer, as workers report it and the database stores it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """A candidate's judged answer to one row."""

    row: int
    """Index of the row."""
    completion: str
    reward: float
    """Selection reward."""
    vote: str | None
    """Vote key; None if the answer is not valid."""
    correct: bool
    """Whether the vote, taken alone, is right."""
    tokens: int
    """Generated tokens, the stop token included."""
    truncated: bool
    """Whether the completion cap ended it."""
