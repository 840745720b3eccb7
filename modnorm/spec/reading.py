"""Reading specs: all faults become one error, which names the first field."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from modnorm.arguments import require_path
from modnorm.errors import InvalidInputError, ModnormError
from modnorm.files import MAX_YAML_BYTES, read_text
from modnorm.hints import nearest
from modnorm.spec.experiment import ExperimentSpec
from modnorm.spec.fault_messages import first_fault
from modnorm.spec.section import STORED, Section
from modnorm.spec.yaml_text import YamlError, compose_yaml, line_of, read_yaml

_FILE = "spec"
"""Field of errors about the file itself, whose message names it."""
_RUN_SPEC = "spec.json"
"""Name of the spec in a run directory."""

SectionT = TypeVar("SectionT", bound=Section)


def parse_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Validate a spec as a whole.

    Raises:
        InvalidInputError: names the first field at fault; the message lists all of them.
    """
    return parse_section(ExperimentSpec, data)


def parse_stored_spec(data: Mapping[str, object]) -> ExperimentSpec:
    """Return a spec that was accepted earlier, although a later rule may forbid it.

    Raises:
        InvalidInputError: names the first field that this version does not know or bounds.
    """
    try:
        return ExperimentSpec.model_validate(data, context=STORED)
    except ValidationError as error:
        raise first_fault(ExperimentSpec, error, (), whole=_FILE) from error


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
        raise first_fault(kind, error, start, whole=_FILE) from error


def load_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read a spec from a YAML file.

    Raises:
        InvalidInputError: the file is missing, is not YAML, has a key twice, or breaks the schema.
    """
    return _load(path, parse_spec)


def load_stored_spec(path: str | PathLike[str]) -> ExperimentSpec:
    """Read the spec of a run directory, which was accepted earlier; see `parse_stored_spec`.

    Raises:
        InvalidInputError: as `load_spec`.
    """
    return _load(path, parse_stored_spec)


def _load(
    path: str | PathLike[str], parse: Callable[[Mapping[str, object]], ExperimentSpec]
) -> ExperimentSpec:
    place = require_path(path, _FILE)
    try:
        data = read_yaml(read_text(place, most=MAX_YAML_BYTES))
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error.strerror or error}",
            field=_FILE,
            remedy=_neighbour(place) or "`modnorm init` writes a spec to start from",
        ) from error
    except YamlError as error:
        raise _not_yaml(path, error) from error
    except ValueError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", field=_FILE, remedy=_spec_inside(place)
        ) from error
    if not isinstance(data, dict):
        kind = "is empty" if data is None else "is not a YAML mapping of fields to values"
        raise InvalidInputError(
            f"{path} {kind}", field=_FILE, remedy="`modnorm init` writes a spec to start from"
        )
    if {"axes", "seeds"} <= data.keys():
        raise InvalidInputError(
            f"{path} is a suite of experiments",
            field=_FILE,
            remedy="run it with `modnorm suite run`",
        )
    with located(path):
        return parse(data)


def _not_yaml(path: str | PathLike[str], error: YamlError) -> InvalidInputError:
    """Return the error for a file that is no YAML; it names the line."""
    fault = InvalidInputError(error.fault)
    fault.place = str(path) if error.line is None else f"{path}:{error.line}"
    return fault


def _neighbour(path: Path) -> str | None:
    """Return a question that names the file nearest to a misspelt one.

    Names are compared without their suffix, because most specs have the same. Of two files that
    differ in it alone, the question names that with the suffix of the misspelt one.
    """
    try:
        files = [each for each in path.parent.iterdir() if each.is_file()]
    except OSError:
        return None
    if path.exists():
        return None
    files.sort(key=lambda each: (each.suffix == path.suffix, each.name))
    names = {each.stem: each.name for each in files}
    close = nearest(path.stem, names)
    return None if close is None else f"did you mean {names[close]}?"


def _spec_inside(path: Path) -> str | None:
    """Return the remedy that names the spec of a run directory; None for other paths."""
    spec = path / _RUN_SPEC
    return f"the spec of this run is {spec}" if spec.is_file() else None


@contextmanager
def located(path: str | PathLike[str]) -> Iterator[None]:
    """Add the file, and the line of the field at fault, to errors about a spec."""
    try:
        yield
    except ModnormError as error:
        if error.field == _FILE:
            raise
        error.place = error.place or _place(Path(path), error.field or "")
        raise


def _place(path: Path, field: str) -> str | None:
    """Return `FILE:LINE` of a field, the file if the line is unknown, None if it is no field."""
    try:
        tree = compose_yaml(read_text(path, most=MAX_YAML_BYTES))
    except (OSError, ValueError):
        return str(path)
    steps = [int(step) if step.isdecimal() else step for step in field.split(".")]
    line = line_of(tree, steps)
    if line is None:
        return str(path) if steps[0] in ExperimentSpec.model_fields else None
    return f"{path}:{line}"
