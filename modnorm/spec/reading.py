"""Reading of specs; one error lists all faults and names the first field."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from modnorm.errors import InvalidInputError
from modnorm.files import MAX_YAML_BYTES, read_text
from modnorm.spec import section
from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.section import Section
from modnorm.spec.yaml_text import read_yaml

SectionT = TypeVar("SectionT", bound=Section)

_LISTED = 10
"""Most faults that an error lists."""
_MESSAGES = {
    "missing": "must be given",
    "string_unicode": "holds half a surrogate pair; write the character itself",
    "model_attributes_type": "must be a mapping of fields to values",
    "model_type": "must be a mapping of fields to values",
    "tuple_type": "must be a list",
    "union_tag_not_found": "must be given",
}
"""Messages by pydantic's type of fault."""


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a whole spec.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    return parse_section(ExperimentSpec, data)


def parse_section(kind: type[SectionT], data: object, *, field: str | None = None) -> SectionT:
    """Validate one section of a spec.

    Args:
        kind: The section's class.
        data: Its content.
        field: Its path in the spec, for example `calibration`; None for a whole spec.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        start = () if field is None else (field,)
        raise first_fault(kind, error, start, whole="spec") from error


def load_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInputError: the file is missing, is not YAML, repeats a key, or breaks the schema.
    """
    try:
        data = read_yaml(read_text(Path(path), most=MAX_YAML_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read {path}: {error}", field="spec") from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{path} is not a YAML mapping", field="spec")
    return parse_spec(data)


def first_fault(
    kind: type[BaseModel], error: ValidationError, start: Sequence[str] = (), *, whole: str
) -> InvalidInputError:
    """Return the faults of a content as one error, with the first field and the remedies.

    Args:
        kind: The expected class.
        error: Pydantic's error.
        start: Path of the content in its file.
        whole: Name of the content, for faults without a field.
    """
    listed = islice(plain_faults(kind, error), _LISTED)
    faults = [(".".join(map(_step, (*start, *place))), text) for place, text in listed]
    field, message = faults[0]
    others = "; ".join(f"{name}: {text}" for name, text in faults[1:])
    if error.error_count() > _LISTED:
        others += f"; and {error.error_count() - _LISTED:,} more"
    return InvalidInputError(
        f"{message}; also {others}" if others else message, field=field or whole
    )


def _step(step: int | str) -> str:
    """Return a step of a path as text, in quotes if it is blank."""
    text = str(step)
    return text if text.strip() else repr(text)


def plain_faults(
    kind: type[BaseModel], error: ValidationError
) -> Iterator[tuple[list[int | str], str]]:
    """Yield path and message of each fault in a content.

    Args:
        kind: The expected class.
        error: Pydantic's error.
    """
    for fault in error.errors(include_url=False, include_input=False):
        yield _path(kind, fault), _message(kind, fault)


def _message(kind: type[BaseModel], fault: ErrorDetails) -> str:
    """Return the message of a fault, with the remedy."""
    match fault["type"]:
        case "extra_forbidden":
            _, sections = _walk(kind, fault["loc"][:-1])
            names = ", ".join(_names(sections[0]))
            return f"there is no such field here, only {names}"
        case "union_tag_invalid":
            expected = fault["ctx"]["expected_tags"].replace("'", "")
            return f"there is no {fault['ctx']['tag']!r} here, only {expected}"
        case "too_short":
            return f"must have at least {fault['ctx']['min_length']}"
        case "too_long":
            return f"must have at most {fault['ctx']['max_length']:,}"
    return _MESSAGES.get(fault["type"], fault["msg"].removeprefix("Value error, "))


def _names(kind: type[BaseModel]) -> Iterator[str]:
    """Yield the names of a section's fields in files."""
    for name, field in kind.model_fields.items():
        yield field.alias or name


def _walk(
    kind: type[BaseModel], path: Sequence[int | str]
) -> tuple[list[int | str], list[type[BaseModel]]]:
    """Follow a path of pydantic.

    Returns:
        The path in the file, without pydantic's tags, and the possible section classes at its end.
    """
    written: list[int | str] = []
    here = [kind]
    for step in path:
        tagged = [each for each in here if _is_tag(each, step)]
        if not tagged:
            written.append(step)
        if isinstance(step, str):
            here = tagged or [
                inner
                for each in here
                if step in each.model_fields
                for inner in _sections(each.model_fields[step].annotation)
            ]
    return written, here


def _is_tag(kind: type[BaseModel], step: int | str) -> bool:
    """Return whether a step is pydantic's tag of a section, not a field."""
    fields = kind.model_fields
    return step not in fields and any(
        step in get_args(field.annotation) for field in fields.values()
    )


def _sections(hint: object) -> Iterator[type[BaseModel]]:
    """Yield the section classes in a type, for example in `Rows | None`."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from _sections(part)


def _path(kind: type[BaseModel], fault: ErrorDetails) -> list[int | str]:
    """Return the path of a fault; pydantic reports some faults at the section."""
    path, _ = _walk(kind, fault["loc"])
    match fault["type"]:
        case "extra_forbidden":  # an unknown field is no tag, even if a field has this value
            path, _ = _walk(kind, fault["loc"][:-1])
            path.append(fault["loc"][-1])
        case section.FIELD_FAULT:
            path.append(fault["ctx"]["field"])
        case "union_tag_invalid" | "union_tag_not_found":
            path.append(fault["ctx"]["discriminator"].strip("'"))
    return path
