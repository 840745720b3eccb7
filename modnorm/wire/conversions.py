"""Conversions between types of the library and messages of `proto/modnorm/v1`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import BaseModel

from modnorm.errors import InvalidInputError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.spec import CalibrationSpec, ExperimentSpec, MethodSpec, parse_section, parse_spec
from modnorm.tasks.protocol import Message
from modnorm.v1 import common_pb2, experiment_pb2

T = TypeVar("T")
MessageT = TypeVar("MessageT", bound=ProtoMessage)
_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = MappingProxyType(
    {"system": "system", "user": "user", "assistant": "assistant"}
)


def spec_to_proto(spec: ExperimentSpec) -> experiment_pb2.ExperimentSpec:
    """Encode a spec; unset fields stay unset. A distillation is refused."""
    spec.require_search()
    return section_to_proto(spec, experiment_pb2.ExperimentSpec)


def section_to_proto(section: BaseModel, message: type[MessageT]) -> MessageT:
    """Encode a section of a spec, or a whole one."""
    return json_format.ParseDict(section.model_dump(mode="json", exclude_none=True), message())


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
    turns = (common_pb2.ChatMessage(role=turn.role, content=turn.content) for turn in messages)
    return common_pb2.Prompt(messages=turns)


def prompts_from_proto(prompts: Iterable[common_pb2.Prompt]) -> list[tuple[Message, ...]]:
    decoded = []
    for index, prompt in enumerate(prompts):
        if not prompt.messages:
            raise InvalidInputError(f"prompt {index} has no messages", field=f"prompts.{index}")
        decoded.append(tuple(_message(index, turn) for turn in prompt.messages))
    return decoded


def _message(index: int, turn: common_pb2.ChatMessage) -> Message:
    role = _ROLES.get(turn.role)
    if role is None:
        raise InvalidInputError(
            f"prompt {index} has a message of role {turn.role!r}",
            field=f"prompts.{index}",
            remedy="roles are system, user and assistant",
        )
    return Message(role, turn.content)


class _SharedFields(NamedTuple):
    """Names that a dataclass and a message share, and which are optional or repeated there."""

    names: tuple[str, ...]
    optional: tuple[str, ...]
    repeated: tuple[str, ...]


def _compare_fields(kind: type, message: type[ProtoMessage]) -> _SharedFields:
    named = message.DESCRIPTOR.fields_by_name
    shared = {each.name: named[each.name] for each in fields(kind) if each.name in named}
    return _SharedFields(
        tuple(shared),
        tuple(name for name, field in shared.items() if field.has_presence),
        tuple(name for name, field in shared.items() if field.is_repeated),
    )


_shared_fields = cast(
    "Callable[[type, type[ProtoMessage]], _SharedFields]", cache(_compare_fields)
)


def from_message(kind: type[T], message: ProtoMessage, **renamed: object) -> T:
    """Return a dataclass from the fields of equal names; an unset optional field is None.

    Fields with another name or type in the message are given as `renamed`.
    """
    shared = _shared_fields(kind, type(message))
    values = {name: getattr(message, name) for name in shared.names}
    for name in shared.optional:
        if not message.HasField(name):
            values[name] = None
    for name in shared.repeated:
        values[name] = tuple(values[name])
    return kind(**{**values, **renamed})


def to_message(kind: type[MessageT], value: object, **renamed: object) -> MessageT:
    """Return a message with the fields that a dataclass shares with it; see `from_message`."""
    names = _shared_fields(type(value), kind).names
    return kind(**{**{name: getattr(value, name) for name in names}, **renamed})


def descriptor_to_proto(descriptor: Descriptor) -> common_pb2.Descriptor:
    """Encode a descriptor; coefficients are float32."""
    return to_message(
        common_pb2.Descriptor,
        descriptor,
        coefficients=descriptor.coefficients or (),
        scale_map_digest=descriptor.scale_map,
        lineage_digest=descriptor.lineage,
    )


def descriptor_from_proto(message: common_pb2.Descriptor) -> Descriptor:
    """Decode a descriptor; no coefficients means that they are not resolved yet."""
    return from_message(
        Descriptor,
        message,
        coefficients=tuple(message.coefficients) or None,
        scale_map=message.scale_map_digest,
        lineage=message.lineage_digest,
    )
