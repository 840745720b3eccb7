"""From a file of questions to a file of answers."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines import EngineSettings, load_engine
from modnorm.errors import InvalidInputError
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.ranked_votes import OnProgress, Prediction, ignore_progress
from modnorm.prediction.voting_experts import Questions, VotingExperts
from modnorm.tasks import Row, Task

BATCH = 4096
"""Questions that all experts answer before the next ones; this bounds the memory."""


@dataclass(frozen=True, slots=True)
class PlacedQuestions:
    """Questions with their places in a file."""

    questions: Questions
    places: Sequence[str]


def encode_questions(
    ensemble: EnsembleDefinition,
    base: Checkpoint,
    task: Task,
    placed: Iterable[tuple[str, Row]],
) -> PlacedQuestions:
    """Return questions with their prompts, all of which fit the model.

    Args:
        ensemble: Its completion cap counts.
        base: The base model.
        task: Makes the prompts.
        placed: Questions after their places.

    Raises:
        InvalidInputError: there is no question, or one does not fit; the message names its place.
    """
    pairs = tuple(placed)
    if not pairs:
        raise InvalidInputError("there are no questions", field="input")
    places, rows = zip(*pairs, strict=True)
    encoder = PromptEncoder(base)
    prompts = []
    for place, row in pairs:
        try:
            prompt = encoder.encode(task.messages(row))
            check_fit([prompt], ensemble.task.max_tokens, base)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{place}: {error.message}", field="input", remedy=error.remedy
            ) from error
        prompts.append(prompt)
    return PlacedQuestions(Questions(rows, prompts), places)


def predict_questions(  # noqa: PLR0913 - options by keyword
    ensemble: EnsembleDefinition,
    base: Checkpoint,
    task: Task,
    questions: Questions,
    *,
    engine: str = "auto",
    ask_all: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Iterator[Prediction]:
    """Yield the ensemble's answer to each question, in order.

    Args:
        ensemble: The ensemble.
        base: The base model, of the ensemble's digest.
        task: The ensemble's task.
        questions: The questions.
        engine: Engine by name.
        ask_all: Whether experts also answer questions whose vote is settled.
        on_progress: See `OnProgress`.

    Raises:
        InvalidInputError: there is no such engine.
        EvaluationError: an expert cannot answer, or the engine failed.
    """
    longest = max(map(len, questions.prompts))
    settings = EngineSettings(max_model_len=longest + ensemble.task.max_tokens)
    total = len(questions.rows) * ensemble.ensemble_size
    loaded = load_engine(engine, base, settings)
    try:
        experts = VotingExperts(loaded, ensemble, task, ask_all=ask_all)
        for start in range(0, len(questions.rows), BATCH):
            batch = Questions(
                questions.rows[start : start + BATCH], questions.prompts[start : start + BATCH]
            )
            report = partial(_report, on_progress, start * ensemble.ensemble_size, total)
            for prediction in experts.predict(batch, report):
                yield replace(prediction, row=start + prediction.row)
    finally:
        loaded.close()


def _report(on_progress: OnProgress, before: int, total: int, done: int) -> None:
    on_progress(before + done, total)


def answer_line(prediction: Prediction) -> str:
    """Return a prediction as one line of JSON."""
    return json.dumps(asdict(prediction), sort_keys=True, allow_nan=False) + "\n"
