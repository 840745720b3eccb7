"""Reading specs: everything that is wrong with one, as one error that names the first field."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeVar, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from modnorm.errors import InvalidInputError
from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.section import FIELD_FAULT, Section

SectionT = TypeVar("SectionT", bound=Section)


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a spec as a whole.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    return parse_section(ExperimentSpec, data)


def parse_section(
    kind: type[SectionT], data: Mapping[str, object], *, field: str | None = None
) -> SectionT:
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
        raise _first_fault(kind, error, field) from error


def load_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInputError: the file is missing, is not YAML, or breaks the schema.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InvalidInputError(f"cannot read {path}: {error}", field="spec") from error
    if not isinstance(data, dict):
        raise InvalidInputError(f"{path} is not a YAML mapping", field="spec")
    return parse_spec(data)


def _first_fault(
    kind: type[Section], error: ValidationError, prefix: str | None
) -> InvalidInputError:
    start = () if prefix is None else (prefix,)
    faults = [
        (".".join(str(step) for step in (*start, *_place(fault))), _words(kind, fault))
        for fault in error.errors(include_url=False, include_input=False)
    ]
    field, message = faults[0]
    others = "; ".join(f"{name}: {text}" for name, text in faults[1:])
    return InvalidInputError(
        f"{message}; also {others}" if others else message, field=field or "spec"
    )


def _words(kind: type[Section], fault: ErrorDetails) -> str:
    """Say what is wrong, and what would be right."""
    match fault["type"]:
        case "extra_forbidden":
            known = ", ".join(_section_at(kind, fault["loc"][:-1]).model_fields)
            return f"there is no such field here, only {known}"
        case "missing":
            return "must be given"
        case "model_type":
            return "must be a mapping of fields to values"
    return fault["msg"].removeprefix("Value error, ")


def _section_at(kind: type[Section], path: Sequence[int | str]) -> type[Section]:
    """Return the class of the section at a path."""
    for step in path:
        kind = next(_sections(kind.model_fields[str(step)].annotation))
    return kind


def _sections(hint: object) -> Iterator[type[Section]]:
    """Yield the sections that a type names: those of `Rows | None` for instance."""
    if isinstance(hint, type) and issubclass(hint, Section):
        yield hint
    for part in get_args(hint):
        yield from _sections(part)


def _place(fault: ErrorDetails) -> tuple[int | str, ...]:
    """Return where a fault lies; one of `field_fault` is placed at its section by pydantic."""
    if fault["type"] == FIELD_FAULT:
        return (*fault["loc"], fault["ctx"]["field"])
    return fault["loc"]
