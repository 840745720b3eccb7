"""Answers of an ensemble to questions: its experts answer one after another in one engine."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Engine, EngineSettings, Finish, GenerationLimits, load_engine
from modnorm.errors import ConflictError, InvalidInputError, UnavailableError
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, define_ensemble
from modnorm.prediction.ranked_votes import (
    ExpertAnswer,
    OnProgress,
    Prediction,
    RankedVotes,
    ignore_progress,
)
from modnorm.spec import ModelSpec
from modnorm.tasks import Row, Task
from modnorm.tasks.row_loading import parse_question, vote_key

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


@dataclass(frozen=True, slots=True)
class Question:
    """A question as an engine answers it."""

    row: Row | None
    """None where no vote is wanted."""
    prompt: Sequence[int]
    """Token ids."""
    max_tokens: int
    """Completion cap, equal for all questions of one request."""
    stop: Sequence[str] = ()
    """Texts that end the completion."""


class Predictor:
    """An ensemble with its task and its base on this machine."""

    def __init__(self, ensemble: EnsembleDefinition, base: Checkpoint) -> None:
        self._ensemble = ensemble
        self._base = base
        self.task = ensemble.task.load()

    def encode(self, placed: Iterable[tuple[str, Row]]) -> list[Question]:
        """Return questions, each after its place in a file, with prompts that fit the model."""
        questions, cap = [], self._ensemble.task.max_tokens
        encoder = PromptEncoder(self._base)
        for place, row in placed:
            try:
                prompt = encoder.encode(self.task.messages(row))
                check_fit([prompt], cap, self._base)
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{place}: {error.message}", field="input", remedy=error.remedy
                ) from error
            questions.append(Question(row, prompt, cap))
        if not questions:
            raise InvalidInputError(
                "there are no questions", field="input", remedy="give one row at least"
            )
        return questions

    def predict(
        self,
        questions: Sequence[Question],
        engine_name: str = "auto",
        *,
        ask_all: bool = False,
        on_progress: OnProgress = ignore_progress,
    ) -> Iterator[Prediction]:
        """Yield the ensemble's answer to each question, in order."""
        longest = max(len(each.prompt) for each in questions) + self._ensemble.task.max_tokens
        settings = EngineSettings(max_model_len=longest)
        with closing(load_engine(engine_name, self._base, settings)) as engine:
            asked = (engine, self._ensemble, self.task, questions)
            yield from vote_on_questions(*asked, ask_all=ask_all, on_progress=on_progress)


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


def vote_on_questions(  # noqa: PLR0913 - what is asked, of whom and how
    engine: Engine,
    ensemble: EnsembleDefinition,
    task: Task,
    questions: Sequence[Question],
    *,
    ask_all: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Iterator[Prediction]:
    """Yield the vote on each question, in order, while the experts take turns in the engine."""
    size, total = ensemble.ensemble_size, ensemble.ensemble_size * len(questions)
    for start in range(0, len(questions), BATCH):
        rows = range(start, min(start + BATCH, len(questions)))
        votes = RankedVotes(size, rows, ask_all=ask_all)
        predictions: list[Prediction] = []
        for rank, expert in enumerate(ensemble.experts, 1):
            asked = votes.open_rows
            done = start * size + rank * len(rows) - len(asked)
            answers: dict[int, ExpertAnswer] = {}
            given = _answers(engine, ensemble, expert, task, [questions[row] for row in asked])
            with closing(given):  # the traceback of an error of on_progress would keep it open
                for index, answer in given:
                    answers[asked[index]] = answer
                    on_progress(done + len(answers), total)
            on_progress(done + len(asked), total)
            predictions += votes.add(answers)
        yield from sorted(predictions, key=lambda each: each.row)


def _answers(
    engine: Engine,
    ensemble: EnsembleDefinition,
    expert: Expert,
    task: Task,
    questions: Sequence[Question],
) -> Generator[tuple[int, ExpertAnswer]]:
    """Yield index and answer of each question as the expert completes them."""
    if not questions:
        return
    (cap,) = {each.max_tokens for each in questions}
    prompts, limits = [each.prompt for each in questions], GenerationLimits(cap)
    with (
        engine.candidate(expert.descriptor, ensemble.scale_map),
        closing(engine.generate(prompts, limits)) as completions,
    ):
        for completion in completions:
            question = questions[completion.index]
            text = _before(completion.text, question.stop)
            is_whole = text == completion.text
            yield (
                completion.index,
                ExpertAnswer(
                    expert=expert.index,
                    vote=None if question.row is None else vote_key(task, question.row, text),
                    completion=text,
                    tokens=completion.tokens,
                    truncated=is_whole and completion.finish is Finish.LENGTH,
                ),
            )


def _before(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first of some texts; the whole text without one."""
    places = [place for place in map(text.find, stops) if place >= 0]
    return text[: min(places)] if places else text
