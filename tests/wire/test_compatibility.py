"""Services of neighbouring versions understand each other: released fields keep number and type.

`released_fields.txt` lists fields, enumeration values and rpcs of releases. It only grows: a
release adds its new lines, which `current_lines` returns.
"""

import importlib
import pkgutil
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

import modnorm.v1

RELEASED = (Path(__file__).parent / "released_fields.txt").read_text().splitlines()


def test_released_fields_keep_number_and_type():
    assert len(RELEASED) > 500
    assert sorted(set(RELEASED) - current_lines()) == []


def current_lines() -> set[str]:
    """Return one line for each field, enumeration value and rpc of the contracts."""
    names = [one.name for one in pkgutil.iter_modules(modnorm.v1.__path__)]
    files: list[FileDescriptor] = [
        importlib.import_module(f"modnorm.v1.{name}").DESCRIPTOR
        for name in names
        if name.endswith("_pb2")
    ]
    return {line for file in files for line in file_lines(file)}


def file_lines(file: FileDescriptor):
    for message in file.message_types_by_name.values():
        yield from message_lines(message)
    for enum in file.enum_types_by_name.values():
        yield from enum_lines(enum)
    for service in file.services_by_name.values():
        for rpc in service.methods:
            kinds = f"{streams(rpc.client_streaming)}{rpc.input_type.full_name}"
            answers = f"{streams(rpc.server_streaming)}{rpc.output_type.full_name}"
            yield f"{rpc.full_name} {kinds} {answers}"


def streams(streaming: bool) -> str:
    return "stream of " if streaming else ""


def message_lines(message: Descriptor):
    for field in message.fields:
        yield f"{message.full_name} {field.number} {field.name} {type_of(field)}"
    for nested in message.nested_types:
        yield from message_lines(nested)
    for enum in message.enum_types:
        yield from enum_lines(enum)


def type_of(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    kind = named.full_name if named else str(field.type)
    return f"repeated {kind}" if field.is_repeated else kind


def enum_lines(enum: EnumDescriptor):
    for value in enum.values:
        yield f"{enum.full_name} {value.number} {value.name}"
