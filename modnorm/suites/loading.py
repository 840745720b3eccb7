"""Reading suite files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from pydantic import ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import MAX_YAML_BYTES, read_text
from modnorm.spec import read_yaml
from modnorm.spec.reading import first_fault
from modnorm.suites.cells import Cell, make_cells, overlay
from modnorm.suites.declaration import Fragment, Suite


@dataclass(frozen=True)
class LoadedSuite:
    """A suite and its cells."""

    suite: Suite
    cells: tuple[Cell, ...]
    settings: tuple[Fragment, ...] = ()
    """What was laid over every cell."""


def load_suite(path: str | PathLike[str], settings: Sequence[Fragment] = ()) -> LoadedSuite:
    """Read a suite file and expand it.

    Args:
        path: The file.
        settings: Fragments laid over every cell at last.

    Raises:
        InvalidInputError: the file or that of its parts is missing, is not YAML, breaks the
            schema, or a cell's spec is not sound; names the field, or the cell and its field.
    """
    file = Path(path)
    content = _with_parts(_read(file, "suite"), file)
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        raise first_fault(Suite, error, whole="suite") from error
    return LoadedSuite(suite, make_cells(suite, settings), tuple(settings))


def setting(text: str) -> Fragment:
    """Read `population.noise=randopt-reseed-v1` as a fragment; values are YAML.

    Raises:
        InvalidInputError: it is not of this form.
    """
    path, equals, value = text.partition("=")
    steps = path.split(".")
    if not equals or not all(steps):
        raise InvalidInputError(
            f"{text!r} sets nothing", field="set", remedy="for instance engine.name=vllm"
        )
    try:
        content = read_yaml(value)
    except ValueError as error:
        raise InvalidInputError(f"cannot read {value!r}: {error}", field="set") from error
    fragment = {steps[-1]: content}
    for step in reversed(steps[:-1]):
        fragment = {step: fragment}
    return fragment


def _read(path: Path, field: str) -> dict[str, object]:
    try:
        content = read_yaml(read_text(path, most=MAX_YAML_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read {path}: {error}", field=field) from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} is not a YAML mapping", field=field)
    return content


def _with_parts(content: dict[str, object], file: Path) -> dict[str, object]:
    """Put fragments in the place of their names, in the base and in the options of the axes."""
    name = content.get("parts")
    parts = _read(file.parent / name, "parts") if isinstance(name, str) else {}
    resolved = dict(content)
    if "base" in content:
        resolved["base"] = _resolve(content["base"], parts, "base")
    axes = content.get("axes")
    if isinstance(axes, Mapping):
        resolved["axes"] = {
            axis: _resolved_axis(options, parts, f"axes.{axis}") for axis, options in axes.items()
        }
    return resolved


def _resolved_axis(options: object, parts: Mapping[str, object], field: str) -> object:
    if not isinstance(options, Mapping):
        return options
    return {
        label: _resolve(option, parts, f"{field}.{label}") for label, option in options.items()
    }


def _resolve(option: object, parts: Mapping[str, object], field: str) -> object:
    """Return a fragment: itself, that of a name, or several, each over the one before."""
    if isinstance(option, str):
        if not isinstance(parts.get(option), Mapping):
            raise InvalidInputError(
                f"there is no part named {option!r}",
                field=field,
                remedy=f"one of {', '.join(parts)}" if parts else "name a file with `parts`",
            )
        return parts[option]
    if isinstance(option, list):
        merged: dict[str, object] = {}
        for each in option:
            found = _resolve(each, parts, field)
            if not isinstance(found, Mapping):
                raise InvalidInputError(f"{found!r} is no part of a spec", field=field)
            merged = overlay(merged, found)
        return merged
    return option
