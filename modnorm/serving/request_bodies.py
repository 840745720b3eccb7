"""Bodies of requests, as OpenAI's API defines them.

The fields below are the table of what is accepted. A field without effect on a greedy answer takes
any value of its type. A field whose effect is not supported takes only its neutral values, and is
refused by name otherwise.
"""

import json
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)

from modnorm.serving.api_errors import invalid
from modnorm.spec.section import field_fault, plain_faults

MOST_STOPS = 16
"""Most texts that end a completion."""
_GREEDY = "decoding is greedy: leave it out, or set it to"
_UNSUPPORTED = "is not supported: leave it out, or set it to"


def _only(*neutral: object, reason: str = _UNSUPPORTED) -> AfterValidator:
    """Return a validator of a field that is null or has a value without effect."""

    def check(value: object) -> object:
        # 0 and false are equal in Python.
        same = [each for each in neutral if each == value and type(each) is not bool]
        if value is None or same or any(value is each for each in neutral):
            return value
        raise ValueError(f"{reason} {json.dumps(neutral[0] if neutral else None)}")

    return AfterValidator(check)


def _off() -> AfterValidator:
    return _only(False)  # noqa: FBT003 - the neutral value itself


def _as_stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(each, str) for each in stops):
        raise ValueError("must be a text or a list of texts")
    if len(stops) > MOST_STOPS:
        raise ValueError(f"must have at most {MOST_STOPS} texts")
    return tuple(filter(None, stops))


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
    """One message of a conversation, also one that a server sent."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[TextPart], BeforeValidator(_as_parts)]
    """A text comes as one part."""
    name: str | None = None
    """Without effect: chat templates know no names."""
    refusal: Annotated[object, _only()] = None
    annotations: Annotated[object, _only([])] = None
    audio: Annotated[object, _only()] = None
    tool_calls: Annotated[object, _only([])] = None
    function_call: Annotated[object, _only()] = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content)


class StreamOptions(BaseModel):
    """What a stream holds beside its text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: Annotated[bool | None, _off()] = None


class ChatBody(BaseModel):
    """A request to `/v1/chat/completions`; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    messages: list[ChatMessage] = Field(default_factory=list, max_length=256)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    row: dict[str, object] | None = None
    """Extension: a question in the task's columns. The task's prompt replaces the messages."""
    stop: Annotated[tuple[str, ...], PlainValidator(_as_stops)] = ()
    """Texts that end a completion; they are not part of it."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    # Without effect on a greedy answer.
    metadata: dict[str, object] | None = None
    parallel_tool_calls: bool | None = None
    prediction: dict[str, object] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    seed: int | None = None
    user: str | None = None

    # With an effect that is not supported.
    audio: Annotated[object, _only()] = None
    frequency_penalty: Annotated[float | None, _only(0)] = None
    function_call: Annotated[object, _only("none", "auto")] = None
    functions: Annotated[object, _only([])] = None
    logit_bias: Annotated[object, _only({})] = None
    logprobs: Annotated[object, _off()] = None
    modalities: Annotated[object, _only(["text"])] = None
    n: Annotated[int | None, _only(1, reason=_GREEDY)] = None
    presence_penalty: Annotated[float | None, _only(0)] = None
    reasoning_effort: Annotated[object, _only("none")] = None
    response_format: Annotated[object, _only({"type": "text"})] = None
    service_tier: Annotated[object, _only("auto", "default")] = None
    store: Annotated[object, _off()] = None
    temperature: Annotated[float | None, _only(0, reason=_GREEDY)] = None
    tool_choice: Annotated[object, _only("none", "auto")] = None
    tools: Annotated[object, _only([])] = None
    top_logprobs: Annotated[object, _only(0)] = None
    top_p: float | None = Field(default=None, ge=0, le=1)
    verbosity: Annotated[object, _only("medium")] = None
    web_search_options: Annotated[object, _only()] = None

    @model_validator(mode="after")
    def _greedy(self) -> "ChatBody":
        """Refuse `top_p`, unless the request itself sets a temperature of 0."""
        if self.temperature is None and self.top_p not in {None, 1}:
            raise field_fault("top_p", f"{_GREEDY} 1")
        return self

    @property
    def cap(self) -> int | None:
        """The requested completion cap; the newer name wins."""
        return self.max_completion_tokens or self.max_tokens


def parse_body(content: bytes) -> ChatBody:
    try:
        return ChatBody.model_validate_json(content)
    except ValidationError as error:
        fault = next(plain_faults(ChatBody, error))
        where = ".".join(map(str, fault.place))
        text = f"{fault.text} ({fault.hint})" if fault.hint else fault.text
        raise invalid(f"{where}: {text}" if where else text, where or None) from None
