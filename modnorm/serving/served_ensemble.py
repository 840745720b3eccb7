"""The models of a server, and the way from a request to a question."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.serving.api_errors import ApiError, from_library, invalid
from modnorm.serving.request_bodies import Body, ChatBody, CompletionBody
from modnorm.tasks import Message, Row, Task
from modnorm.tasks.questions import parse_question, prompt_question

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
    streams: bool = False
    """Whether pieces of the text are wanted as they come."""


class ServedEnsemble:
    """An ensemble and its experts as models; used by one thread.

    Args:
        definition: The ensemble.
        base: Its base.
        most_tokens: Longest prompt and completion together.
    """

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

    def question(self, body: Body) -> Question:
        """Return the question of a request.

        Raises:
            ApiError: there is no such model, the prompt does not fit, or nothing can vote on it.
        """
        self.require_model(body.model)
        if body.stream and body.model == ENSEMBLE:
            raise invalid("only a single expert streams: a vote needs whole answers", "stream")
        try:
            row, prompt = self._prompt(body)
        except InvalidInputError as error:
            raise from_library(error) from error
        return Question(body.model, row, prompt, self._cap(body, prompt), bool(body.stream))

    def require_model(self, name: str) -> None:
        """Refuse a name that is no model.

        Raises:
            ApiError: there is no such model.
        """
        if name not in self.models:
            raise ApiError(
                404,
                f"there is no model {name[:64]!r}; models are {', '.join(self.models)}",
                code="model_not_found",
                param="model",
            )

    def _prompt(self, body: Body) -> tuple[Row | None, list[int]]:
        if body.row is not None:
            row = parse_question(self.task, body.row, "row")
            return row, self.encoder.encode(self.task.messages(row))
        if isinstance(body, ChatBody):
            messages = [_message(turn.role, turn.text) for turn in body.messages]
            if not messages:
                raise invalid("there is no message and no row", "messages")
            asked = next((each.content for each in reversed(messages) if each.role == "user"), "")
            return self._row(body, asked), self.encoder.encode(messages)
        text = body.prompt if isinstance(body, CompletionBody) else ""
        if not text:
            raise invalid("there is no prompt and no row", "prompt")
        return self._row(body, text), self.encoder.encode_text(text)

    def _row(self, body: Body, prompt: str) -> Row | None:
        """Return the question of a prompt; an expert that is asked alone casts no vote."""
        if body.model != ENSEMBLE:
            return None
        return prompt_question(self.task, prompt)

    def _cap(self, body: Body, prompt: Sequence[int]) -> int:
        cap = min(body.cap or self.definition.task.max_tokens, self.definition.task.max_tokens)
        field = "messages" if isinstance(body, ChatBody) else "prompt"
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


def _message(role: str, text: str) -> Message:
    if role == "assistant":
        return Message("assistant", text)
    return Message("user" if role == "user" else "system", text)
