"""The models of a server, and the way from a request to a question."""

from collections.abc import Sequence
from dataclasses import replace

from modnorm.checkpoint.prompts import PromptEncoder, check_fit
from modnorm.checkpoint.reference import Checkpoint
from modnorm.errors import InvalidInputError
from modnorm.prediction.ensemble_definition import EnsembleDefinition
from modnorm.prediction.predictor import Question
from modnorm.serving.api_errors import ApiError, from_library, invalid
from modnorm.serving.request_bodies import ChatBody
from modnorm.tasks import Message, Task
from modnorm.tasks.row_loading import parse_question, prompt_question

ENSEMBLE = "ensemble"
"""Name of the model that votes."""


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

    def question(self, body: ChatBody) -> Question:
        self.require_model(body.model)
        try:
            return self._question(body)
        except InvalidInputError as error:
            raise from_library(error) from error

    def require_model(self, name: str) -> None:
        if name not in self.models:
            raise ApiError(
                404,
                f"there is no model {name[:64]!r}; models are {', '.join(self.models)}",
                code="model_not_found",
                param="model",
            )

    def _question(self, body: ChatBody) -> Question:
        """Return a question with its prompt; an expert that is asked alone casts no vote."""
        row = None
        if body.row is not None:
            row = parse_question(self.task, body.row, "row")
            messages: Sequence[Message] = self.task.messages(row)
        elif body.messages:
            messages = [
                Message("system" if turn.role == "developer" else turn.role, turn.text)
                for turn in body.messages
            ]
        else:
            raise invalid("there is no message and no row", "messages")
        prompt = self.encoder.encode(messages)
        cap = self._cap(body, prompt)
        if row is None and body.model == ENSEMBLE:
            asked = next((each.content for each in reversed(messages) if each.role == "user"), "")
            row = prompt_question(self.task, asked)
        return Question(row, prompt, cap, body.stop)

    def _cap(self, body: ChatBody, prompt: Sequence[int]) -> int:
        most, left = self.definition.task.max_tokens, self.most_tokens - len(prompt)
        cap = min(most, body.cap) if body.cap else max(1, min(most, left))
        if cap > left:
            raise invalid(
                f"{len(prompt)} prompt tokens and {cap} completion tokens do not fit the "
                f"{self.most_tokens} tokens of this server",
                "messages",
                code="context_length_exceeded",
            )
        try:
            check_fit([prompt], cap, self.base)
        except InvalidInputError as error:
            raise invalid(error.message, "messages") from error
        return cap
