"""The content of a suite file: a base spec, axes of partial specs, seeds, and tables.

Every combination of one option of each axis and one seed is a cell. A cell is an ordinary
experiment spec: the base, the options in the order of the axes, then the matching overrides.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from modnorm.spec.section import Name, field_fault

NUMBERS = ("N", "K")
Labels = tuple[str, ...]
Pick = Mapping[str, str | int]
"""One option of each named axis; `N` and `K` may be among them."""
Thresholds = Annotated[tuple[float, ...], Field(min_length=1)]
"""Gains over the unperturbed model, in percentage points."""


class SuiteSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _pick(value: object) -> object:
    """Read N and K as numbers and options as text."""
    if not isinstance(value, Mapping):
        return value
    return {axis: _size(axis, v) if axis in NUMBERS else _label(v) for axis, v in value.items()}


def _label(value: object) -> object:
    return value if isinstance(value, str | bool) or value is None else str(value)


def _size(axis: str, value: object) -> int:
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", str(value)):
        raise ValueError(f"{axis} must be a whole number, not {value!r}")
    return int(str(value))


Picked = Annotated[Pick, BeforeValidator(_pick)]


class Published(SuiteSection):
    """The paper's figures of a table."""

    source: str
    values: object
    """Mappings by the labels of the row, then of the column, to a mean or a mean and sample SD.
    Figures beside a comparison are under `m` and `cutoff` of its label."""


class Contrast(SuiteSection):
    """An order that the paper reports: one option above others, in each place."""

    axis: str
    of: str
    against: Labels


class Table(SuiteSection):
    """Fields of every table."""

    title: str
    source: str = ""
    paper: Published | None = None
    digits: int = Field(default=2, ge=0, le=6)

    @property
    def axes(self) -> Labels:
        """Axes of the rows and columns; `N` and `K` may be among them."""
        return (*getattr(self, "rows", ()), *getattr(self, "columns", ()))

    def references(self) -> Iterator[tuple[str, Pick]]:
        """Yield the options that the table names, by field."""
        yield from ()


class _RowTable(Table):
    rows: Labels = Field(min_length=1)
    """Axes whose combinations are the rows."""


class CellTable(_RowTable):
    """A table with a row for each group of cells that differ in the seed alone."""

    @model_validator(mode="after")
    def _rows_are_of_cells(self) -> Self:
        for axis in self.rows:
            if axis in NUMBERS:
                raise field_fault("rows", f"{axis} is equal in all cells: name axes, or seed")
        return self


class ThresholdTable(CellTable):
    """Percentage of candidates whose gain reaches each threshold."""

    thresholds: Thresholds


class MetricTable(_RowTable):
    """Held-out metric of ensembles, in percent: mean and sample SD over seeds."""

    kind: Literal["metric"]
    columns: Labels = ()
    at: Picked = {}
    """Fixed options: of axes, N or K."""
    at_row: Mapping[str, Picked] = {}
    """Fixed options by the option of the first row axis that they apply to."""
    base_row: str | None = None
    """Label of a row for the unperturbed model, which every cell measures."""
    reduction: Picked = {}
    """Adds "Eval. red.": the cost of the row with these options over that of each row (paper,
    app. "Evaluation-Budget Accounting"), both as counted. Rows run over N and K; no columns."""
    contrast: Contrast | None = None

    @model_validator(mode="after")
    def _reduction_is_of_rows(self) -> Self:
        if self.reduction and (self.columns or self.base_row or {*NUMBERS} - {*self.rows}):
            raise ValueError("reduction needs N and K among the rows, no columns, no base_row")
        return self

    @model_validator(mode="after")
    def _contrast_is_of_rows_or_columns(self) -> Self:
        if self.contrast is not None and self.contrast.axis not in self.axes:
            raise field_fault(
                "contrast.axis", f"must be of the rows or columns: {', '.join(self.axes)}"
            )
        return self

    def references(self) -> Iterator[tuple[str, Pick]]:
        yield "at", self.at
        yield "reduction", self.reduction
        if self.contrast is not None:
            for option in (self.contrast.of, *self.contrast.against):
                if option != self.base_row:
                    yield "contrast", {self.contrast.axis: option}
        for label, pick in self.at_row.items():
            yield f"at_row.{label}", {**pick, self.rows[0]: label}


class Comparison(SuiteSection):
    """Two places whose values are compared seed by seed."""

    label: str
    of: Picked
    against: Picked

    @property
    def places(self) -> dict[str, Pick]:
        return {"of": self.of, "against": self.against}


class ComparingTable(Table):
    compare: tuple[Comparison, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        labels = [pair.label for pair in self.compare]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                raise field_fault(f"compare.{index}.label", f"{label} is there already")
        return self

    def references(self) -> Iterator[tuple[str, Pick]]:
        for index, pair in enumerate(self.compare):
            for name, pick in pair.places.items():
                yield f"compare.{index}.{name}", pick


class DifferenceTable(ComparingTable):
    """Mean differences in percentage points: a column for each comparison, a row for each K."""

    kind: Literal["difference"]
    ensemble_sizes: tuple[int, ...] = Field(min_length=1)

    def references(self) -> Iterator[tuple[str, Pick]]:
        yield from super().references()
        for size in self.ensemble_sizes:
            yield "ensemble_sizes", {"K": size}


class SpeedupTable(ComparingTable):
    """Time of `against` over time of `of`, seed by seed: a row for each comparison."""

    kind: Literal["speedup"]


class SupportTable(ComparingTable):
    """Exact decomposition of an accuracy difference (app. "Support Redistribution")."""

    kind: Literal["support"]

    @model_validator(mode="after")
    def _ensembles_are_of_one_size(self) -> Self:
        for index, pair in enumerate(self.compare):
            for name, pick in pair.places.items():
                if lacking := [axis for axis in NUMBERS if axis not in pick]:
                    raise field_fault(f"compare.{index}.{name}", f"must name {lacking[0]}")
            if pair.of["K"] != pair.against["K"]:
                raise field_fault(f"compare.{index}.against", "must have the K of `of`")
        return self


class TailTable(ComparingTable):
    """Required populations by threshold (app. "Tail-Implied Population Efficiency")."""

    kind: Literal["tail"]
    thresholds: Thresholds
    hits: int = Field(default=10, ge=1)
    probability: float = Field(default=0.9, gt=0, lt=1)


class WallClockTable(CellTable):
    """Minutes of search and of the whole pipeline (app. "Timing scope")."""

    kind: Literal["wall_clock"]


class DensityTable(ThresholdTable):
    """Gains of accuracy (app. "Solution Density on Countdown and GSM8K")."""

    kind: Literal["density"]


class SurvivalTable(ThresholdTable):
    """Gains of selection reward (fig. 3)."""

    kind: Literal["survival"]


class DevelopmentTable(CellTable):
    """Accuracy of iterative runs on development rows, in percent, and the setting it chooses.

    (App. D.1, "Hyperparameter selection on Countdown".) The development rows are the held-out rows
    of the cells; states between the first and the last are those of `iterative.monitor`.
    """

    kind: Literal["development"]
    by: Literal["best", "last"]
    """State whose accuracies are compared."""
    stable_within: float | None = Field(default=None, ge=0)
    """Percentage points that the last state of a stable trial may be below the first. Only stable
    trials are chosen; None accepts all."""
    adopted: Mapping[str, str] = {}
    """The paper's choice: option of the second row axis by option of the first."""

    @model_validator(mode="after")
    def _rows_are_methods_and_settings(self) -> Self:
        if len(self.rows) != 2:
            raise field_fault("rows", "must name two axes: methods, then what is tuned of each")
        return self

    def references(self) -> Iterator[tuple[str, Pick]]:
        for method, setting in self.adopted.items():
            yield "adopted", {self.rows[0]: method, self.rows[1]: setting}


class RoundsTable(CellTable):
    """Held-out accuracies of distillations: base, first search, and the student of each round."""

    kind: Literal["rounds"]


TableSpec = Annotated[
    MetricTable
    | DifferenceTable
    | SpeedupTable
    | SupportTable
    | TailTable
    | WallClockTable
    | DensityTable
    | DevelopmentTable
    | RoundsTable
    | SurvivalTable,
    Field(discriminator="kind"),
]


Fragment = Mapping[str, object]
"""Part of an experiment spec, laid over another."""
Where = Mapping[str, str | int | tuple[str, ...]]
"""Options by axis; a cell matches if it has one of the options on every named axis."""

_PLACES = frozenset({"seed", "N", "K"})
"""Names that tables use like axes: every cell or its results have them."""
_TABLE_COLUMNS = frozenset({"cell", "item", "value", "column", "correct"})
"""Names of the other columns in `modnorm.suites.outcomes`."""


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


class Suite(SuiteSection):
    """The content of a suite file."""

    name: Annotated[str, Field(max_length=60)]
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
        if not re.fullmatch("[a-z0-9][a-z0-9-]*", self.name):
            raise field_fault(
                "name", f"{self.name!r} must be of a-z, 0-9 and -, the first no - (my-suite)"
            )
        for axis, options in self.axes.items():
            if axis in _PLACES:
                raise field_fault(
                    "axes", f"{axis!r} cannot name an axis: every cell has this field"
                )
            if axis in _TABLE_COLUMNS:
                raise field_fault("axes", f"{axis!r} cannot name an axis: tables have this column")
            if not options:
                raise field_fault(f"axes.{axis}", "has no options")
        if len(set(self.seeds)) < len(self.seeds):
            raise field_fault("seeds", "name each seed once")
        return self

    @model_validator(mode="after")
    def _references_hold(self) -> Self:
        for index, override in enumerate(self.overrides):
            self._check_reference(f"overrides.{index}.where", override.where, {"seed"})
        for index, where in enumerate(self.exclude):
            self._check_reference(f"exclude.{index}", where, {"seed"})
        if self.profiles:
            origin: Where = {self.profiles.axis: self.profiles.origin}
            self._check_reference("profiles", origin, {"seed"})
        for index, table in enumerate(self.tables):
            self._check_axes(f"tables.{index}", table.axes, _PLACES)
            for field, pick in table.references():
                self._check_reference(f"tables.{index}.{field}", pick, _PLACES)
        return self

    def _check_axes(self, field: str, axes: Collection[str], others: Collection[str]) -> None:
        for axis in axes:
            if axis not in self.axes and axis not in others:
                known = ", ".join([*self.axes, *sorted(others)])
                raise field_fault(field, f"there is no axis {axis!r}, only {known}")

    def _check_reference(self, field: str, where: Where, others: Collection[str]) -> None:
        self._check_axes(field, where, others)
        for axis, labels in where.items():
            options = map(str, self.seeds) if axis == "seed" else self.axes.get(axis)
            known = None if options is None else list(options)
            for label in labels if isinstance(labels, tuple) else (labels,):
                if known is not None and str(label) not in known:
                    raise field_fault(
                        field, f"{axis} has no option {label!r}, only {', '.join(known)}"
                    )
