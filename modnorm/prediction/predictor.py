"""Answers of an ensemble to raw questions: the one way from a run or a manifest to votes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import EngineSettings, load_engine
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError
from modnorm.prediction.ensemble_definition import EnsembleDefinition, define_ensemble
from modnorm.prediction.ranked_votes import OnProgress, Prediction, ignore_progress
from modnorm.prediction.voting_experts import Questions, VotingExperts
from modnorm.spec import ModelSpec
from modnorm.tasks import Row
from modnorm.tasks.row_loading import parse_question

if TYPE_CHECKING:
    from modnorm.analysis.run import Run

BATCH = 4096
"""Questions that all experts answer before the next ones; this bounds the memory."""


_FIELD = "model"
_REMEDY = "name where it is on this machine with --model, its commit with --revision"


@dataclass(frozen=True, slots=True)
class BasePlace:
    """Name and revision of a base on this machine; None means as in the spec."""

    name: str | None = None
    revision: str | None = None

    def find(self, model: ModelSpec, digest: str) -> Checkpoint:
        """Return the base of an experiment."""
        named = model.revision if self.name is None else None
        try:
            found = resolve_checkpoint(self.name or model.name, self.revision or named)
        except (InvalidInputError, UnavailableError) as error:
            raise type(error)(error.message, field=_FIELD, remedy=_REMEDY) from error
        if found.digest != digest:
            raise ConflictError(
                f"{found.name} is not the model that the experiment started with: "
                f"{found.digest[:32]}, not {digest[:32]}",
                field=_FIELD,
                remedy=_REMEDY,
            )
        return found


class Predictor:
    """An ensemble with its task and its base on this machine."""

    def __init__(self, ensemble: EnsembleDefinition, base: Checkpoint) -> None:
        self._ensemble = ensemble
        self._base = base
        self.task = ensemble.task.load()

    def encode(self, placed: Iterable[tuple[str, Row]]) -> Questions:
        """Return questions, each after its place in a file, with prompts that fit the model."""
        rows, prompts = [], []
        encoder = PromptEncoder(self._base)
        for place, row in placed:
            try:
                prompt = encoder.encode(self.task.messages(row))
                check_fit([prompt], self._ensemble.task.max_tokens, self._base)
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{place}: {error.message}", field="input", remedy=error.remedy
                ) from error
            rows.append(row)
            prompts.append(prompt)
        if not rows:
            raise InvalidInputError(
                "there are no questions", field="input", remedy="give one row at least"
            )
        return Questions(rows, prompts)

    def predict(
        self,
        questions: Questions,
        engine_name: str = "auto",
        *,
        ask_all: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> Iterator[Prediction]:
        """Yield the ensemble's answer to each question, in order."""
        size, rows = self._ensemble.ensemble_size, len(questions.rows)
        longest = max(map(len, questions.prompts)) + self._ensemble.task.max_tokens
        settings = EngineSettings(max_model_len=longest)
        engine = load_engine(engine_name, self._base, settings)
        try:
            experts = VotingExperts(engine, self._ensemble, self.task, ask_all=ask_all)
            for start in range(0, rows, BATCH):
                batch = Questions(
                    questions.rows[start : start + BATCH], questions.prompts[start : start + BATCH]
                )
                before = start * size
                for prediction in experts.predict(
                    batch,
                    lambda done, before=before: on_progress(before + done, rows * size),  # type: ignore[misc]
                ):
                    yield replace(prediction, row=start + prediction.row)
        finally:
            engine.close()


def predict(  # noqa: PLR0913 - the last three are keyword-only
    run: "Run",
    questions: Iterable[Mapping[str, object]],
    population: int | None = None,
    ensemble_size: int | None = None,
    *,
    place: BasePlace | None = None,
    engine: str = "auto",
    ask_all: bool = False,
) -> tuple[Prediction, ...]:
    """Return an ensemble's answers to new questions, in order; needs the base model here.

    Args:
        run: A finished search.
        questions: Rows with the task's columns; they need not state the right answers.
        population: N; the largest when None.
        ensemble_size: K; the largest when None.
        place: The base on this machine; that of the spec when None.
        engine: Engine by name.
        ask_all: Whether experts also answer questions whose vote is settled.

    Raises:
        InvalidInputError: a row breaks the task's schema, or this machine has no such base.
        NotFoundError: the run does not report the ensemble.
        ConflictError: the model of the base's name is another one.
        EvaluationError: an expert cannot answer, or the engine failed.
    """
    ensemble = define_ensemble(run, population, ensemble_size)
    base = (place or BasePlace()).find(ensemble.model, ensemble.model_digest)
    predictor = Predictor(ensemble, base)
    named = ((f"row {number}", raw) for number, raw in enumerate(questions))
    asked = predictor.encode((at, parse_question(predictor.task, raw, at)) for at, raw in named)
    return tuple(predictor.predict(asked, engine, ask_all=ask_all))
