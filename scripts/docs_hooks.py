"""Hooks of mkdocs: links that leave docs/, and the gRPC reference."""

import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

# Numbers of fields in descriptor.proto; a comment's place is a path of such numbers and indices.
_FILE_MESSAGES, _FILE_ENUMS, _FILE_SERVICES = 4, 5, 6
_MESSAGE_FIELDS, _MESSAGE_NESTED, _MESSAGE_ENUMS = 2, 3, 4
_MEMBERS = 2  # values of an enum, methods of a service
_INTRODUCTION = """# gRPC

Services, messages and enums of `proto/modnorm/v1`. Every server offers reflection.
"""

Path_ = tuple[int, ...]
Comments = dict[Path_, str]


def reference(folder: Path) -> str:
    """Return one page with every service, message and enum of the .proto files in a folder."""
    files = [file for file in compile_protos(folder).file if file.package.startswith("modnorm")]
    return "\n".join([_INTRODUCTION, *(line for file in files for line in _file(file))])


def compile_protos(folder: Path) -> FileDescriptorSet:
    """Return the descriptors of all .proto files in a folder, with their comments."""
    protos = sorted(str(path) for path in folder.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "descriptors"
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}"]
        options = [f"--descriptor_set_out={out}", "--include_source_info"]
        subprocess.run([*protoc, *options, *protos], check=True)
        return FileDescriptorSet.FromString(out.read_bytes())


def _file(file: FileDescriptorProto) -> Iterator[str]:
    comments = {
        tuple(place.path): " ".join((place.leading_comments or place.trailing_comments).split())
        for place in file.source_code_info.location
    }
    yield f"## {Path(file.name).name}\n"
    for index, service in enumerate(file.service):
        yield from _service(service, (_FILE_SERVICES, index), comments)
    for index, message in enumerate(file.message_type):
        yield from _message(message, message.name, (_FILE_MESSAGES, index), comments)
    for index, enum in enumerate(file.enum_type):
        yield from _enum(enum, enum.name, (_FILE_ENUMS, index), comments)


def _service(service: ServiceDescriptorProto, place: Path_, comments: Comments) -> Iterator[str]:
    rows = [
        (f"`{method.name}`", *_ends(method), comments.get((*place, _MEMBERS, index), ""))
        for index, method in enumerate(service.method)
    ]
    yield from _section(service.name, place, comments)
    yield _table(("method", "request", "response", "meaning"), rows)


def _ends(method: MethodDescriptorProto) -> tuple[str, str]:
    request, response = _short(method.input_type), _short(method.output_type)
    return (
        f"stream of {request}" if method.client_streaming else request,
        f"stream of {response}" if method.server_streaming else response,
    )


def _message(
    message: DescriptorProto, name: str, place: Path_, comments: Comments
) -> Iterator[str]:
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    rows = [
        (f"`{field.name}`", _type(field, maps), comments.get((*place, _MESSAGE_FIELDS, index), ""))
        for index, field in enumerate(message.field)
    ]
    yield from _section(name, place, comments)
    yield _table(("field", "type", "meaning"), rows)
    for index, nested in enumerate(message.nested_type):
        if nested.name not in maps:
            inner = (*place, _MESSAGE_NESTED, index)
            yield from _message(nested, f"{name}.{nested.name}", inner, comments)
    for index, enum in enumerate(message.enum_type):
        yield from _enum(enum, f"{name}.{enum.name}", (*place, _MESSAGE_ENUMS, index), comments)


def _enum(enum: EnumDescriptorProto, name: str, place: Path_, comments: Comments) -> Iterator[str]:
    rows = [
        (f"`{value.name}`", str(value.number), comments.get((*place, _MEMBERS, index), ""))
        for index, value in enumerate(enum.value)
    ]
    yield from _section(name, place, comments)
    yield _table(("value", "number", "meaning"), rows)


def _section(name: str, place: Path_, comments: Comments) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"{comments.get(place, '')}\n"


def _type(field: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
    if field.type_name and (entry := maps.get(_short(field.type_name))):
        key, value = entry.field
        return f"map from {_type(key, {})} to {_type(value, {})}"
    name = _short(field.type_name) or FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return f"repeated {name}" if repeated else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [header, tuple("---" for _ in header), *rows]
    if len(cells) == 2:
        return ""
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in cells)
    return "\n".join(f"| {row} |" for row in escaped) + "\n"


if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

GENERATED = "api/grpc.md"
_LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#]+)[^)]*\)")


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the gRPC reference."""
    from mkdocs.structure.files import File  # noqa: PLC0415 (tests import this file without mkdocs)

    files.append(File.generated(config, GENERATED, content=reference(Path("proto"))))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Return the page with links to files outside docs/ replaced."""
    return name_outside_files(markdown, page.file.src_uri)


def name_outside_files(markdown: str, source: str) -> str:
    """Replace each link that leaves docs/ by its text and the file's path in the repository.

    Such links work on GitHub; the site does not contain their files.
    """

    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(source), link[2]))
        inside = target.startswith("docs/")
        return link[0] if inside else f"{link[1]} (`{target}`)"

    return _LINK.sub(replace, markdown)
