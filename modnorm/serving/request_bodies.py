"""Bodies of requests, as OpenAI's API defines them."""

import json
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from modnorm.serving.api_errors import invalid
from modnorm.spec.fault_messages import plain_faults

_GREEDY = "decoding is greedy: leave it out, or set it to {}"
_UNSUPPORTED = "is not supported: leave it out, or set it to {}"
BodyT = TypeVar("BodyT", bound="Body")


def _only(neutral: float, reason: str = _GREEDY) -> AfterValidator:
    def check(value: float | None) -> float | None:
        if value not in {None, neutral}:
            raise ValueError(reason.format(json.dumps(neutral)))
        return value

    return AfterValidator(check)


def _none_or_empty(value: object) -> object:
    if value:
        raise ValueError(_UNSUPPORTED.format("null"))
    return value


class TextPart(BaseModel):
    """A part of a message; only texts are accepted."""

    type: Literal["text"]
    text: str


def _as_parts(content: object) -> object:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise ValueError("must be a text or a list of texts")  # noqa: TRY004 - for pydantic
    return content


class ChatMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[TextPart], BeforeValidator(_as_parts)]
    """A text comes as one part."""
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "".join(part.text for part in self.content)


class Body(BaseModel):
    """Fields that both kinds of requests share; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    max_tokens: int | None = Field(default=None, ge=1)
    stream: bool | None = None
    stream_options: dict[str, object] | None = None
    temperature: Annotated[float | None, _only(0)] = None
    top_p: Annotated[float | None, _only(1)] = None
    n: Annotated[int | None, _only(1)] = None
    presence_penalty: Annotated[float | None, _only(0, _UNSUPPORTED)] = None
    frequency_penalty: Annotated[float | None, _only(0, _UNSUPPORTED)] = None
    stop: Annotated[object, AfterValidator(_none_or_empty)] = None
    seed: int | None = None
    """Without effect: greedy decoding draws nothing."""
    user: str | None = None
    row: dict[str, object] | None = None
    """Extension: a question in the task's columns. The task's prompt replaces that of the body."""

    @property
    def cap(self) -> int | None:
        """The requested completion cap."""
        return self.max_tokens


class ChatBody(Body):
    """A request to `/v1/chat/completions`."""

    logprobs: Annotated[bool | None, _only(neutral=False, reason=_UNSUPPORTED)] = None
    messages: list[ChatMessage] = Field(default_factory=list, max_length=256)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    @property
    def cap(self) -> int | None:
        """The requested completion cap; the newer name wins."""
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(Body):
    """A request to `/v1/completions`."""

    prompt: str = ""
    logprobs: Annotated[int | None, AfterValidator(_none_or_empty)] = None
    echo: Annotated[bool | None, _only(neutral=False, reason=_UNSUPPORTED)] = None


def parse_body(kind: type[BodyT], content: bytes) -> BodyT:
    """Return the body of a request.

    Raises:
        ApiError: it is no JSON, or a field is missing, unknown or malformed.
    """
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        fault = next(plain_faults(kind, error))
        where = ".".join(map(str, fault.place))
        text = f"{fault.text} ({fault.hint})" if fault.hint else fault.text
        raise invalid(f"{where}: {text}" if where else text, where or None) from None
