"""Answers of an ensemble to raw questions: the one way from a run or a manifest to votes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from modnorm.prediction.base_model import BasePlace
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.question_files import (
    PlacedQuestions,
    encode_questions,
    predict_questions,
)
from modnorm.prediction.ranked_votes import OnProgress, Prediction, ignore_progress
from modnorm.tasks import Row
from modnorm.tasks.questions import parse_question


@dataclass(frozen=True, slots=True)
class PredictionSettings:
    """How an ensemble answers."""

    place: BasePlace = field(default_factory=BasePlace)
    """Where the base is on this machine."""
    engine: str = "auto"
    """Engine by name."""
    ask_all: bool = False
    """Whether experts also answer questions whose vote is settled."""


class Predictor:
    """An ensemble with its task and its base on this machine.

    Args:
        ensemble: The ensemble.
        settings: How it answers.

    Raises:
        InvalidInputError: this machine has no such base, or no such task.
        UnavailableError: the base cannot be fetched.
        ConflictError: the model of this name is not the ensemble's base.
    """

    def __init__(self, ensemble: EnsembleDefinition, settings: PredictionSettings) -> None:
        self._ensemble = ensemble
        self._settings = settings
        self.task = ensemble.task.load()
        self.base = settings.place.find(ensemble.model, ensemble.model_digest)

    def encode(self, placed: Iterable[tuple[str, Row]]) -> PlacedQuestions:
        """Return questions with prompts; see `encode_questions`."""
        return encode_questions(self._ensemble, self.base, self.task, placed)

    def encode_rows(self, rows: Iterable[Mapping[str, object]]) -> PlacedQuestions:
        """Return raw rows as questions with prompts.

        Raises:
            InvalidInputError: a row breaks the task's schema or does not fit the model; the
                message names the row, from 0, and the column.
        """
        named = ((f"row {number}", raw) for number, raw in enumerate(rows))
        return self.encode((place, parse_question(self.task, raw, place)) for place, raw in named)

    def predict(
        self, placed: PlacedQuestions, on_progress: OnProgress = ignore_progress
    ) -> Iterator[Prediction]:
        """Yield the answer to each question, in order; see `predict_questions`."""
        return predict_questions(
            self._ensemble,
            self.base,
            self.task,
            placed.questions,
            engine=self._settings.engine,
            ask_all=self._settings.ask_all,
            on_progress=on_progress,
        )
