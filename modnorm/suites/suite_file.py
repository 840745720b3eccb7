"""The content of a suite file: a base spec, axes of partial specs, seeds, and tables.

Every combination of one option of each axis and one seed is a cell. A cell is an ordinary
experiment spec: the base, the options in the order of the axes, then the matching overrides.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from modnorm.spec.section import Name
from modnorm.suites.table_specs import SuiteSection, TableSpec

Fragment = Mapping[str, object]
"""Part of an experiment spec, laid over another."""
Where = Mapping[str, str | int | tuple[str, ...]]
"""Options by axis; a cell matches if it has one of the options on every named axis."""

_PLACES = frozenset({"seed", "N", "K"})
"""Names that tables use like axes: every cell or its results have them."""
_TABLE_COLUMNS = frozenset({"cell", "item", "value", "column", "is_partial", "is_correct"})
"""Names of the other columns in `modnorm.suites.tidy`."""


def _read_where(value: object) -> object:
    """Accept options written as numbers, alone or in lists."""
    if isinstance(value, Mapping):
        return {
            axis: tuple(map(str, v)) if isinstance(v, list) else str(v)
            for axis, v in value.items()
        }
    return value


def _read_axes(value: object) -> object:
    """Accept labels written as numbers."""
    if isinstance(value, Mapping):
        return {
            axis: {str(label): option for label, option in options.items()}
            if isinstance(options, Mapping)
            else options
            for axis, options in value.items()
        }
    return value


Matching = Annotated[Where, BeforeValidator(_read_where)]


class Override(SuiteSection):
    """A fragment for some cells."""

    where: Matching
    set: Fragment
    """Laid over the matching cells."""


class SharedProfile(SuiteSection):
    """Profiles calibrated on one option of an axis and used on all (paper, sec. 4.2)."""

    axis: str
    origin: str = Field(alias="from")
    """Option whose cells calibrate; other cells wait for the profile of the same model."""


def _is_folder_name(name: str) -> str:
    if not re.fullmatch("[a-z0-9][a-z0-9-]*", name):
        raise ValueError(f"{name!r} must be of a-z, 0-9 and -, the first no - (my-suite)")
    return name


class Suite(SuiteSection):
    """The content of a suite file."""

    name: Annotated[str, Field(max_length=60), AfterValidator(_is_folder_name)]
    title: Name
    source: str = ""
    """Place in the paper."""
    notes: str = ""
    """Questions that the paper leaves open, and the suite's answers."""
    base: Fragment = Field(default={})
    axes: Annotated[Mapping[Name, Mapping[Name, Fragment]], BeforeValidator(_read_axes)]
    """Options by axis and label."""
    seeds: tuple[int, ...] = Field(min_length=1)
    overrides: tuple[Override, ...] = ()
    exclude: tuple[Matching, ...] = ()
    """Combinations that are not cells."""
    profiles: SharedProfile | None = None
    tables: tuple[TableSpec, ...] = ()

    @model_validator(mode="after")
    def _axes_are_named(self) -> Self:
        for axis, options in self.axes.items():
            if axis in _PLACES:
                raise ValueError(f"axes: {axis!r} cannot name an axis: every cell has this field")
            if axis in _TABLE_COLUMNS:
                raise ValueError(f"axes: {axis!r} cannot name an axis: tables have this column")
            if not options:
                raise ValueError(f"axes.{axis}: has no options")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: name each seed once")
        return self

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        for field, where in self._cell_references():
            self._check_reference(field, where, {"seed"})
        for index, table in enumerate(self.tables):
            self._check_axes(f"tables.{index}", table.axes, _PLACES)
            for field, pick in table.references():
                self._check_reference(f"tables.{index}.{field}", pick, _PLACES)
        return self

    def _cell_references(self) -> Iterator[tuple[str, Where]]:
        for index, override in enumerate(self.overrides):
            yield f"overrides.{index}.where", override.where
        for index, where in enumerate(self.exclude):
            yield f"exclude.{index}", where
        if self.profiles:
            yield "profiles", {self.profiles.axis: self.profiles.origin}

    def _check_axes(self, field: str, axes: Collection[str], others: Collection[str]) -> None:
        for axis in axes:
            if axis not in self.axes and axis not in others:
                known = ", ".join(self.axes)
                raise ValueError(f"{field}: there is no axis {axis!r}, only {known}")

    def _check_reference(self, field: str, where: Where, others: Collection[str]) -> None:
        self._check_axes(field, where, others)
        for axis, labels in where.items():
            options = map(str, self.seeds) if axis == "seed" else self.axes.get(axis)
            known = None if options is None else list(options)
            for label in labels if isinstance(labels, tuple) else (labels,):
                if known is not None and str(label) not in known:
                    raise ValueError(
                        f"{field}: {axis} has no option {label!r}, only {', '.join(known)}"
                    )
