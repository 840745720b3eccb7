"""Reading specs: everything that is wrong with one, as one error that names the first field."""

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

_TOLD = 10
"""Faults of a content that an error lists."""
_PLAIN_WORDS = {
    "missing": "must be given",
    "string_unicode": "holds half a surrogate pair; write the character itself",
    "model_attributes_type": "must be a mapping of fields to values",
    "model_type": "must be a mapping of fields to values",
    "tuple_type": "must be a list",
    "union_tag_not_found": "must be given",
}
"""What is wrong, by pydantic's type of fault."""


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a spec as a whole.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    return parse_section(ExperimentSpec, data)


def parse_section(kind: type[SectionT], data: object, *, field: str | None = None) -> SectionT:
    """Validate one section of a spec.

    Args:
        kind: The section's class.
        data: Its content.
        field: Its path in the spec, `calibration` for instance; None for a whole spec.

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
        InvalidInputError: the file is missing, is not YAML, has a key twice, or breaks the schema.
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
    """Return what is wrong with a content as an error that says what would be right.

    Args:
        kind: What it was to be.
        error: What pydantic says.
        start: Path of the content in its file.
        whole: Name of the content, for what no field of it is to blame for.
    """
    told = islice(plain_faults(kind, error), _TOLD)
    faults = [(".".join(map(_step, (*start, *place))), text) for place, text in told]
    field, message = faults[0]
    others = "; ".join(f"{name}: {text}" for name, text in faults[1:])
    if error.error_count() > _TOLD:
        others += f"; and {error.error_count() - _TOLD:,} more"
    return InvalidInputError(
        f"{message}; also {others}" if others else message, field=field or whole
    )


def _step(step: int | str) -> str:
    """Return a step of a path as it is read: one that would not be seen in quotes."""
    text = str(step)
    return text if text.strip() else repr(text)


def plain_faults(
    kind: type[BaseModel], error: ValidationError
) -> Iterator[tuple[list[int | str], str]]:
    """Yield the place of each fault in a content, and in plain words what is wrong.

    Args:
        kind: What the content was to be.
        error: What pydantic says.
    """
    for fault in error.errors(include_url=False, include_input=False):
        yield _place(kind, fault), _words(kind, fault)


def _words(kind: type[BaseModel], fault: ErrorDetails) -> str:
    """Say what is wrong, and what would be right."""
    match fault["type"]:
        case "extra_forbidden":
            _, sections = _walk(kind, fault["loc"][:-1])
            known = ", ".join(_names(sections[0]))
            return f"there is no such field here, only {known}"
        case "union_tag_invalid":
            expected = fault["ctx"]["expected_tags"].replace("'", "")
            return f"there is no {fault['ctx']['tag']!r} here, only {expected}"
        case "too_short":
            return f"must have at least {fault['ctx']['min_length']}"
        case "too_long":
            return f"must have at most {fault['ctx']['max_length']:,}"
    return _PLAIN_WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))


def _names(kind: type[BaseModel]) -> Iterator[str]:
    """Yield the fields of a section as they are written."""
    for name, field in kind.model_fields.items():
        yield field.alias or name


def _walk(
    kind: type[BaseModel], path: Sequence[int | str]
) -> tuple[list[int | str], list[type[BaseModel]]]:
    """Follow a path of pydantic.

    Returns:
        The path as it is written in the file, without the tags that pydantic puts in, and the
        classes of the sections that may stand at its end.
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
    """Tell whether a step is no field of a section, but what one of its fields always holds."""
    fields = kind.model_fields
    return step not in fields and any(
        step in get_args(field.annotation) for field in fields.values()
    )


def _sections(hint: object) -> Iterator[type[BaseModel]]:
    """Yield the sections that a type names: those of `Rows | None` for instance."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from _sections(part)


def _place(kind: type[BaseModel], fault: ErrorDetails) -> list[int | str]:
    """Return where a fault lies; pydantic places some of them at the section."""
    place, _ = _walk(kind, fault["loc"])
    match fault["type"]:
        case "extra_forbidden":  # what is no field is no tag either, though a field may hold it
            place, _ = _walk(kind, fault["loc"][:-1])
            place.append(fault["loc"][-1])
        case section.FIELD_FAULT:
            place.append(fault["ctx"]["field"])
        case "union_tag_invalid" | "union_tag_not_found":
            place.append(fault["ctx"]["discriminator"].strip("'"))
    return place
