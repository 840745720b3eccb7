"""What a suite file declares: a base spec, axes of partial specs, seeds, and tables.

Every combination of one option of each axis and one seed is a cell: the base with the options
laid over it, in the order of the axes, then the overrides that name it. A cell is an ordinary
experiment spec.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from modnorm.spec.section import Name
from modnorm.suites.tables import TableSpec

Fragment = Mapping[str, object]
"""Part of an experiment spec, laid over another."""
Where = Mapping[str, str | tuple[str, ...]]
"""Options by axis; a cell matches when it has one of those named, on every axis named."""

RESERVED_AXES = frozenset({"seed", "N", "K"})
"""What every cell or its results have without an axis."""


def _several(value: object) -> object:
    """Let one label stand for a list of one, and labels be written as numbers."""
    if isinstance(value, Mapping):
        return {
            axis: tuple(map(str, v)) if isinstance(v, list) else str(v)
            for axis, v in value.items()
        }
    return value


def _texts(value: object) -> object:
    """Let labels be written as numbers."""
    if isinstance(value, Mapping):
        return {
            axis: {str(label): option for label, option in options.items()}
            if isinstance(options, Mapping)
            else options
            for axis, options in value.items()
        }
    return value


Matching = Annotated[Where, BeforeValidator(_several)]


class SuiteSection(BaseModel):
    """A section of a suite file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Override(SuiteSection):
    """What some cells have otherwise."""

    where: Matching
    set: Fragment
    """Laid over the cells that match."""


class SharedProfile(SuiteSection):
    """Profiles are calibrated on one option of an axis and used on all (paper, sec. 4.2)."""

    axis: str
    origin: str = Field(alias="from")
    """Option whose cells calibrate; cells of the others wait for the profile of the same model."""


class Suite(SuiteSection):
    """The content of a suite file."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)
    title: Name
    source: str = ""
    """Where in the paper it is from."""
    notes: str = ""
    """What the paper leaves open, and how it is read here."""
    parts: str | None = None
    """A file of named fragments, next to this one; an option that is a name stands for its own."""
    base: Fragment = {}
    axes: Annotated[Mapping[Name, Mapping[Name, Fragment]], BeforeValidator(_texts)]
    """Options by axis and label."""
    seeds: tuple[int, ...] = Field(min_length=1)
    overrides: tuple[Override, ...] = ()
    exclude: tuple[Matching, ...] = ()
    """Combinations that are no cells."""
    profiles: SharedProfile | None = None
    tables: tuple[TableSpec, ...] = ()

    @model_validator(mode="after")
    def _axes_are_named(self) -> Self:
        for axis, options in self.axes.items():
            if axis in RESERVED_AXES:
                raise ValueError(f"axes: {axis!r} is no name of an axis, every cell has it")
            if not options:
                raise ValueError(f"axes.{axis}: has no options")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds: each once")
        return self

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        for place, where in self._references_of_cells():
            for axis in where:
                self._check_axis(place, axis, ("seed",))
        for place, where in (*self._references_of_cells(), *self._references_of_tables()):
            for axis, labels in where.items():
                self._check_axis(place, axis)
                for label in (labels,) if isinstance(labels, str) else labels:
                    self._check_label(place, axis, label)
        return self

    def _references_of_cells(self) -> list[tuple[str, Where]]:
        found = [(f"overrides.{i}.where", each.where) for i, each in enumerate(self.overrides)]
        found += [(f"exclude.{i}", where) for i, where in enumerate(self.exclude)]
        if self.profiles:
            found.append(("profiles", {self.profiles.axis: self.profiles.origin}))
        return found

    def _references_of_tables(self) -> list[tuple[str, Where]]:
        found: list[tuple[str, Where]] = []
        for i, table in enumerate(self.tables):
            for axis in table.axes:
                self._check_axis(f"tables.{i}", axis)
            found += [(f"tables.{i}.{place}", where) for place, where in table.references()]
        return found

    def _check_axis(self, place: str, axis: str, besides: Collection[str] = RESERVED_AXES) -> None:
        if axis not in self.axes and axis not in besides:
            raise ValueError(f"{place}: there is no axis {axis!r}, only {', '.join(self.axes)}")

    def _check_label(self, place: str, axis: str, label: str) -> None:
        options = [str(seed) for seed in self.seeds] if axis == "seed" else self.axes.get(axis)
        if options is not None and label not in options:
            known = ", ".join(options)
            raise ValueError(f"{place}: {axis} has no option {label!r}, only {known}")
