"""Candidates that were written as adapters, for the tests that load them."""

from dataclasses import dataclass
from pathlib import Path

ANSWER_TOKENS = 32
"""Completion cap of their answers."""


@dataclass(frozen=True)
class Adapter:
    """A candidate as an adapter, with the answers of the engine that applied the candidate."""

    directory: Path
    answers: tuple[str, ...]
