"""Conversions between types of the library and messages of `proto/modnorm/v1`."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.unknown_fields import UnknownFieldSet

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.voting import Answer
from modnorm.spec import (
    CalibrationSpec,
    ExperimentSpec,
    MethodSpec,
    parse_section,
    parse_spec,
)
from modnorm.tasks.protocol import Message
from modnorm.v1 import common_pb2, evaluation_pb2, experiment_pb2

_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = MappingProxyType(
    {"system": "system", "user": "user", "assistant": "assistant"}
)


def spec_to_proto(spec: ExperimentSpec) -> experiment_pb2.ExperimentSpec:
    """Encode a spec; unset fields stay unset.

    Raises:
        InvalidInputError: it is a distillation, which is no single experiment.
    """
    spec.require_search()
    return json_format.ParseDict(
        spec.model_dump(mode="json", exclude_none=True), experiment_pb2.ExperimentSpec()
    )


def spec_from_proto(message: experiment_pb2.ExperimentSpec) -> ExperimentSpec:
    """Decode and validate a spec."""
    return parse_spec(_content(message))


def state_name(state: experiment_pb2.ExperimentState.ValueType) -> str:
    """Return the name of a state in lower case: `selecting`."""
    return experiment_pb2.ExperimentState.Name(state).removeprefix("EXPERIMENT_STATE_").lower()


def calibration_from_proto(message: common_pb2.CalibrationSpec) -> CalibrationSpec:
    """Validate calibration settings; unset fields get their defaults."""
    return parse_section(CalibrationSpec, _content(message), field="calibration")


def method_from_proto(message: common_pb2.MethodSpec) -> MethodSpec:
    """Return a validated method; unset fields get their defaults."""
    return parse_section(MethodSpec, _content(message), field="method")


def _content(message: ProtoMessage) -> dict[str, object]:
    _refuse_unknown(message)
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _refuse_unknown(message: ProtoMessage, path: str = "") -> None:
    """Refuse unknown fields of a newer version: ignoring them would change the experiment."""
    if len(UnknownFieldSet(message)):
        raise InvalidInputError(
            "holds a field that this version does not know",
            field=path or "spec",
            remedy="run one version of modnorm on both sides",
        )
    for field, value in message.ListFields():
        if isinstance(value, ProtoMessage):
            _refuse_unknown(value, f"{path}.{field.name}".removeprefix("."))


def prompt_to_proto(messages: Sequence[Message]) -> common_pb2.Prompt:
    """Encode the messages of one prompt."""
    turns = (common_pb2.ChatMessage(role=turn.role, content=turn.content) for turn in messages)
    return common_pb2.Prompt(messages=turns)


def prompts_from_proto(prompts: Iterable[common_pb2.Prompt]) -> list[tuple[Message, ...]]:
    """Decode prompts."""
    return [_prompt(index, prompt) for index, prompt in enumerate(prompts)]


def _prompt(index: int, prompt: common_pb2.Prompt) -> tuple[Message, ...]:
    if not prompt.messages:
        raise InvalidInputError(f"prompt {index} has no messages", field=f"prompts.{index}")
    return tuple(_message(index, turn) for turn in prompt.messages)


def _message(index: int, turn: common_pb2.ChatMessage) -> Message:
    role = _ROLES.get(turn.role)
    if role is None:
        raise InvalidInputError(
            f"prompt {index} has a message of role {turn.role!r}",
            field=f"prompts.{index}",
            remedy="roles are system, user and assistant",
        )
    return Message(role, turn.content)


def answer_to_proto(answer: Answer) -> evaluation_pb2.Answer:
    """Encode an answer."""
    return evaluation_pb2.Answer(
        row=answer.row,
        completion=answer.completion,
        reward=answer.reward,
        vote=answer.vote,
        correct=answer.correct,
        tokens=answer.tokens,
        truncated=answer.truncated,
    )


def answer_from_proto(message: evaluation_pb2.Answer) -> Answer:
    """Decode an answer."""
    return Answer(
        row=message.row,
        completion=message.completion,
        reward=message.reward,
        vote=message.vote if message.HasField("vote") else None,
        correct=message.correct,
        tokens=message.tokens,
        truncated=message.truncated,
    )


def descriptor_to_proto(descriptor: Descriptor) -> common_pb2.Descriptor:
    """Encode a descriptor; coefficients are float32."""
    return common_pb2.Descriptor(
        noise=descriptor.noise,
        seed=descriptor.seed,
        method=descriptor.method,
        radius=descriptor.radius,
        scale_map_digest=descriptor.scale_map,
        coefficients=descriptor.coefficients or (),
        lineage_digest=descriptor.lineage,
    )


def descriptor_from_proto(message: common_pb2.Descriptor) -> Descriptor:
    """Decode a descriptor; no coefficients means that they are not resolved yet."""
    return Descriptor(
        noise=message.noise,
        seed=message.seed,
        method=message.method,
        radius=message.radius,
        scale_map=message.scale_map_digest,
        coefficients=tuple(message.coefficients) or None,
        lineage=message.lineage_digest,
    )
