"""Reading suite files and the files that their cells name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from modnorm.errors import InvalidInputError
from modnorm.files import MAX_YAML_BYTES, read_fault, read_text
from modnorm.hints import one_of
from modnorm.radius.artifact import carry_radius
from modnorm.spec import read_yaml
from modnorm.spec.reading import YamlError, place_of, yaml_fault
from modnorm.spec.section import first_fault
from modnorm.suites.cells import Cell, make_cells, matches, naming_cell, overlay
from modnorm.suites.suite_file import Fragment, Suite, Where
from modnorm.tasks.declared_task import carry_declaration

_FILE = "suite"
"""Field of errors about the file itself, whose message names it."""


@dataclass(frozen=True)
class LoadedSuite:
    suite: Suite
    cells: tuple[Cell, ...]
    settings: tuple[Fragment, ...] = ()
    """Fragments laid over every cell."""
    only: Where = field(default_factory=dict)
    """Options by axis of the chosen cells."""

    @property
    def chosen(self) -> tuple[Cell, ...]:
        """The cells with one of the options on each axis of `only`."""
        return tuple(cell for cell in self.cells if matches(cell.labels, self.only))


def load_suite(
    path: str | PathLike[str], settings: Sequence[Fragment] = (), only: Sequence[str] = ()
) -> LoadedSuite:
    """Read a suite file and make its cells, over each of which `settings` are laid last.

    `only` chooses cells by `AXIS=OPTION`. Other cells with a fault are left out.
    """
    file = Path(path)
    written = _read(file, _FILE)
    with in_suite(file, extends="extends" in written):
        content = _with_parts(_with_extended(written, file))
        if {"task", "method"} <= content.keys():
            command = "distil" if "distillation" in content else "run"
            raise InvalidInputError(
                f"{file} is the spec of one experiment, not a suite",
                field=_FILE,
                remedy=f"run it with `modnorm {command}`, or name a file with `axes`",
            )
        try:
            suite = Suite.model_validate(content)
        except ValidationError as error:
            raise first_fault(Suite, error, whole=_FILE) from error
        where = _read_only(suite, only)
        loaded = LoadedSuite(suite, make_cells(suite, settings, where), tuple(settings), where)
        if not loaded.chosen:
            raise InvalidInputError("no cell has these options", field="only")
        return loaded


def _read_only(suite: Suite, only: Sequence[str]) -> Where:
    """Return the requested options by axis."""
    axes = {**suite.axes, "seed": [str(seed) for seed in suite.seeds]}
    where: dict[str, tuple[str, ...]] = {}
    for text in only:
        axis, equals, option = text.partition("=")
        if not equals or axis not in axes:
            raise InvalidInputError(
                f"{text!r} names no option of an axis",
                field="only",
                remedy=f"AXIS=OPTION with an axis: {one_of(axis, tuple(axes))}",
            )
        if option not in axes[axis]:
            raise InvalidInputError(
                f"{axis} has no option {option!r}",
                field="only",
                remedy=one_of(option, list(axes[axis])),
            )
        where[axis] = (*where.get(axis, ()), option)
    return where


@contextmanager
def in_suite(file: Path, *, extends: bool = False) -> Iterator[None]:
    """Add the file, and the line of the field at fault, to errors about a suite.

    A suite that extends another one gets no line: the field may be in the other file.
    """
    try:
        yield
    except InvalidInputError as error:
        if error.field not in {_FILE, "set", "only"} and error.place is None:
            place = None if extends else place_of(file, error.field or "")
            error.place = place or str(file)
        raise


def inline_files(loaded: LoadedSuite, cache: Path) -> LoadedSuite:
    """Replace file names in cells by content, as labs need it: task files and radius artifacts.

    A cell that is not chosen keeps the name of a file that cannot be used.
    """
    cells = []
    for cell in loaded.cells:
        spec = cell.spec
        with (
            nullcontext() if matches(cell.labels, loaded.only) else suppress(InvalidInputError),
            naming_cell(cell.labels),
        ):
            spec = carry_radius(carry_declaration(cell.spec), cache)
        cells.append(replace(cell, spec=spec))
    return replace(loaded, cells=tuple(cells))


def setting(text: str) -> Fragment:
    """Read `population.noise=randopt-reseed-v1` as a fragment; values are YAML."""
    path, equals, value = text.partition("=")
    steps = path.split(".")
    if not equals or not all(steps):
        raise InvalidInputError(
            f"{text!r} is not PATH=VALUE", field="set", remedy="for instance engine.name=vllm"
        )
    try:
        content = read_yaml(value)
    except ValueError as error:
        raise InvalidInputError(f"cannot read {value!r}: {error}", field="set") from error
    *sections, last = steps
    return reduce(lambda inner, step: {step: inner}, reversed(sections), {last: content})


def _read(path: Path, field: str) -> dict[str, object]:
    try:
        content = read_yaml(read_text(path, most=MAX_YAML_BYTES))
    except YamlError as error:
        raise yaml_fault(path, error) from error
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"cannot read {path}: {read_fault(error)}", field=field) from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{path} is not a YAML mapping", field=field)
    return content


def _with_extended(content: dict[str, object], file: Path) -> dict[str, object]:
    """Return the content of a suite file with its parts, laid over the suite that it extends.

    The base is laid over the other base, axes replace those of the same names, and overrides,
    exclusions and parts are added. Every other section replaces the other one.
    """
    content = _with_part_file(content, file)
    extended = content.pop("extends", None)
    if extended is None:
        return content
    if not isinstance(extended, str):
        raise InvalidInputError("must be the name of a suite file", field="extends")
    lower = _with_part_file(_read(file.parent / extended, "extends"), file.parent / extended)
    if "extends" in lower:
        raise InvalidInputError(f"{extended} extends a suite itself", field="extends")
    merged = {**lower, **content}
    for section in ("base", "overrides", "exclude"):
        if section in lower and section in content:
            merged[section] = [*_listed(lower[section]), *_listed(content[section])]
    for section in ("axes", "parts"):
        below, upper = lower.get(section), content.get(section)
        if isinstance(below, Mapping) and isinstance(upper, Mapping):
            merged[section] = {**below, **upper}
    return merged


def _with_part_file(content: dict[str, object], file: Path) -> dict[str, object]:
    """Replace the name of the parts file by its content."""
    name = content.get("parts", "")
    if not isinstance(name, str):
        raise InvalidInputError("must be the name of a file", field="parts")
    return {**content, "parts": _read(file.parent / name, "parts") if name else {}}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _with_parts(content: dict[str, object]) -> dict[str, object]:
    """Replace names of parts by the parts, in the base and in the options of the axes."""
    parts = cast("Mapping[str, object]", content.pop("parts"))
    resolved = dict(content)
    if "base" in content:
        resolved["base"] = _resolve(content["base"], parts, "base")
    if isinstance(axes := content.get("axes"), Mapping):
        resolved["axes"] = {
            axis: {
                label: _resolve(option, parts, f"axes.{axis}.{label}")
                for label, option in options.items()
            }
            if isinstance(options, Mapping)
            else options
            for axis, options in axes.items()
        }
    return resolved


def _resolve(option: object, parts: Mapping[str, object], field: str) -> object:
    """Return the fragment of an option: a part by name, or several, each over the one before."""
    if isinstance(option, str):
        if not isinstance(parts.get(option), Mapping):
            raise InvalidInputError(
                f"there is no part named {option!r}",
                field=field,
                remedy=one_of(option, parts) if parts else "name a file with `parts`",
            )
        return parts[option]
    if isinstance(option, list):
        merged: dict[str, object] = {}
        for each in option:
            fragment = _resolve(each, parts, field)
            if not isinstance(fragment, Mapping):
                raise InvalidInputError(f"{fragment!r} is not part of a spec", field=field)
            merged = overlay(merged, fragment)
        return merged
    return option
