"""The models of a server, and the way from a request to a question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.serving.api_errors import ApiError, from_library, invalid
from modnorm.serving.request_bodies import Body, ChatBody, CompletionBody
from modnorm.tasks import Message, Row, Task
from modnorm.tasks.row_loading import parse_question, prompt_question

ENSEMBLE = "ensemble"
"""Name of the model that votes."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question of one request."""

    model: str
    row: Row | None
    """None where no vote is wanted."""
    prompt: Sequence[int]
    """Token ids."""
    max_tokens: int
    stop: tuple[str, ...] = ()
    """Texts that end the completion."""
    streams: bool = False
    """Whether pieces of the text are wanted as they come."""


class ServedEnsemble:
    """An ensemble and its experts as models; used by one thread."""

    def __init__(self, definition: EnsembleDefinition, base: Checkpoint, most_tokens: int) -> None:
        self.definition = definition
        self.most_tokens = min(most_tokens, base.max_position)
        self.base = base
        self.encoder = PromptEncoder(base)
        self.task: Task = definition.task.load()
        """The task that votes."""
        experts = {
            f"expert-{rank}": replace(definition, experts=(expert,))
            for rank, expert in enumerate(definition.experts, 1)
        }
        self.models: dict[str, EnsembleDefinition] = {ENSEMBLE: definition, **experts}
        """The definition behind each model's name."""

    def questions(self, body: Body) -> list[Question]:
        """Return the questions of a request, one for each prompt."""
        self.require_model(body.model)
        if body.stream and body.model == ENSEMBLE:
            raise invalid("only a single expert streams: a vote needs whole answers", "stream")
        try:
            questions = list(self._questions(body))
        except InvalidInputError as error:
            raise from_library(error) from error
        if not questions:
            name = _field(body)
            raise invalid(f"there is no {name.removesuffix('s')} and no row", name)
        return questions

    def require_model(self, name: str) -> None:
        """Refuse a name that is no model."""
        if name not in self.models:
            raise ApiError(
                404,
                f"there is no model {name[:64]!r}; models are {', '.join(self.models)}",
                code="model_not_found",
                param="model",
            )

    def _questions(self, body: Body) -> Iterator[Question]:
        if body.row is not None:
            row = parse_question(self.task, body.row, "row")
            yield self._question(body, self.encoder.encode(self.task.messages(row)), row=row)
        elif isinstance(body, CompletionBody) and all(body.prompt):
            for prompt in body.prompt:
                if isinstance(prompt, str):
                    yield self._question(body, self.encoder.encode_text(prompt), text=prompt)
                else:
                    yield self._question(body, prompt)
        elif isinstance(body, ChatBody) and body.messages:
            messages = [
                Message("system" if turn.role == "developer" else turn.role, turn.text)
                for turn in body.messages
            ]
            asked = next((each.content for each in reversed(messages) if each.role == "user"), "")
            yield self._question(body, self.encoder.encode(messages), text=asked)

    def _question(
        self, body: Body, ids: Sequence[int], *, row: Row | None = None, text: str | None = None
    ) -> Question:
        """Return the question of a prompt; an expert that is asked alone casts no vote."""
        cap = self._cap(body, ids)
        if row is None and body.model == ENSEMBLE:
            row = prompt_question(self.task, self.encoder.decode(ids) if text is None else text)
        return Question(body.model, row, ids, cap, body.stop, bool(body.stream))

    def _cap(self, body: Body, prompt: Sequence[int]) -> int:
        field = _field(body)
        cap = min(body.cap or self.definition.task.max_tokens, self.definition.task.max_tokens)
        if len(prompt) + cap > self.most_tokens:
            raise invalid(
                f"{len(prompt)} prompt tokens and {cap} completion tokens do not fit the "
                f"{self.most_tokens} tokens of this server",
                field,
                code="context_length_exceeded",
            )
        try:
            check_fit([prompt], cap, self.base)
        except InvalidInputError as error:
            raise invalid(error.message, field) from error
        return cap


def _field(body: Body) -> str:
    return "messages" if isinstance(body, ChatBody) else "prompt"
