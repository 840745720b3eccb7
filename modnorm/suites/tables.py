"""The tables of a suite file: which numbers stand where, and what the paper has there."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from modnorm.spec.section import field_fault

Pick = Mapping[str, str | int]
"""One option of each axis named, `N` and `K` among them."""
Labels = tuple[str, ...]


def _label(value: object) -> object:
    return value if isinstance(value, str | bool) or value is None else str(value)


def _pick(value: object) -> object:
    """Read N and K as numbers and options as text."""
    if not isinstance(value, Mapping):
        return value
    return {axis: _size(axis, v) if axis in {"N", "K"} else _label(v) for axis, v in value.items()}


def _size(axis: str, value: object) -> int:
    """Read N or K.

    Raises:
        ValueError: it is no whole number.
    """
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", str(value)):
        raise ValueError(f"{axis} must be a whole number, and {value!r} is none")
    return int(str(value))


Picked = Annotated[Pick, BeforeValidator(_pick)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Published(_Section):
    """What the paper prints in the place of a table."""

    source: str
    values: object
    """Mappings by the labels of the row, then of the column; in each place a mean, or mean and
    sample SD. What stands beside a comparison is under `m` and `cutoff` of its label."""


class Contrast(_Section):
    """An order that the paper reports: one option ahead of others, cell by cell."""

    axis: str
    of: str
    against: Labels


class _Table(_Section):
    title: str
    source: str = ""
    paper: Published | None = None
    digits: int = Field(default=2, ge=0, le=6)

    @property
    def axes(self) -> Labels:
        """Axes that rows and columns run over."""
        return ()

    def references(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the options that the table names, by its own field."""
        yield from ()


class _RowTable(_Table):
    rows: Labels = Field(min_length=1)
    """Axes whose combinations are the rows."""

    @property
    def axes(self) -> Labels:
        """Axes that rows and columns run over."""
        return self.rows


class _CellTable(_RowTable):
    @model_validator(mode="after")
    def _rows_are_of_cells(self) -> Self:
        for axis in self.rows:
            if axis in {"N", "K"}:
                raise field_fault("rows", f"{axis} tells no cells apart: name axes, or seed")
        return self


def _options(pick: Pick) -> dict[str, str]:
    return {axis: str(label) for axis, label in pick.items() if axis not in {"N", "K", "seed"}}


class MetricTable(_RowTable):
    """Held-out metric of ensembles, in percent: mean and sample SD over seeds."""

    kind: Literal["metric"]
    columns: Labels = ()
    at: Picked = {}
    """What is fixed: one option of an axis, N or K."""
    at_row: Mapping[str, Picked] = {}
    """The same, for single options of the first axis of the rows."""
    base_row: str | None = None
    """Label of a row for the unperturbed model, which every cell measures."""
    reduction: Picked = {}
    """Adds "Eval. red.": the cost of the row with these options over that of each row (paper,
    app. "Evaluation-Budget Accounting"), both as counted. Rows run over N and K; no columns."""
    contrast: Contrast | None = None

    @property
    def axes(self) -> Labels:
        """Axes that rows and columns run over, `N` and `K` among them."""
        return (*self.rows, *self.columns)

    @model_validator(mode="after")
    def _reduction_is_of_rows(self) -> Self:
        if self.reduction and (self.columns or self.base_row or {"N", "K"} - {*self.rows}):
            raise ValueError("reduction needs N and K among the rows, no columns, no base_row")
        return self

    def references(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the options that the table names."""
        yield "at", _options(self.at)
        yield "reduction", _options(self.reduction)
        if self.contrast is not None:
            yield "contrast", {self.contrast.axis: self.contrast.of}
        for label, pick in self.at_row.items():
            yield f"at_row.{label}", _options(pick) | {self.rows[0]: label}


class Comparison(_Section):
    """Two places whose numbers are compared seed by seed."""

    label: str
    of: Picked
    against: Picked


class _ComparingTable(_Table):
    compare: tuple[Comparison, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _labels_differ(self) -> Self:
        seen = set[str]()
        for index, pair in enumerate(self.compare):
            if pair.label in seen:
                raise field_fault(f"compare.{index}.label", f"{pair.label} is there already")
            seen.add(pair.label)
        return self

    def references(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the options that the table names."""
        for index, pair in enumerate(self.compare):
            yield f"compare.{index}.of", _options(pair.of)
            yield f"compare.{index}.against", _options(pair.against)


class DifferenceTable(_ComparingTable):
    """Mean differences in percentage points, a column a comparison, a row each K."""

    kind: Literal["difference"]
    ensemble_sizes: tuple[int, ...] = Field(min_length=1)


class SpeedupTable(_ComparingTable):
    """Time of `against` over time of `of`, seed by seed; a row a comparison."""

    kind: Literal["speedup"]


class SupportTable(_ComparingTable):
    """Exact decomposition of an accuracy difference (app. "Support Redistribution")."""

    kind: Literal["support"]

    @model_validator(mode="after")
    def _compares_ensembles_of_a_size(self) -> Self:
        for index, pair in enumerate(self.compare):
            for place, pick in (("of", pair.of), ("against", pair.against)):
                if lacking := [axis for axis in ("N", "K") if axis not in pick]:
                    raise field_fault(f"compare.{index}.{place}", f"must name {lacking[0]}")
            if pair.of["K"] != pair.against["K"]:
                raise field_fault(f"compare.{index}.against", "must have the K of `of`")
        return self


class TailTable(_ComparingTable):
    """Required populations by threshold (app. "Tail-Implied Population Efficiency")."""

    kind: Literal["tail"]
    thresholds: tuple[float, ...] = Field(min_length=1)
    """Selection-reward gains over the base, in percentage points."""
    hits: int = Field(default=10, ge=1)
    probability: float = Field(default=0.9, gt=0, lt=1)


class WallClockTable(_CellTable):
    """Minutes of search and of the whole pipeline (app. "Timing scope")."""

    kind: Literal["wall_clock"]


class DensityTable(_CellTable):
    """Percentage of candidates whose accuracy gain reaches a threshold.

    (App. "Solution Density on Countdown and GSM8K".)
    """

    kind: Literal["density"]
    thresholds: tuple[float, ...] = Field(min_length=1)
    """In percentage points."""


class SurvivalTable(_CellTable):
    """Percentage of candidates whose selection-reward gain reaches a threshold (fig. 3)."""

    kind: Literal["survival"]
    thresholds: tuple[float, ...] = Field(min_length=1)
    """In percentage points."""


class DevelopmentTable(_CellTable):
    """Accuracy of iterative runs on development rows, in percent, and the setting it chooses.

    (App. E.1, "Hyperparameter selection on Countdown".) The development rows are the held-out rows
    of the cells; states between the first and the last are those of `iterative.monitor`.
    """

    kind: Literal["development"]
    by: Literal["best", "last"]
    """The state that trials are compared by."""
    stable_within: float | None = Field(default=None, ge=0)
    """Percentage points that the last state of a stable trial may be below the first; only stable
    trials are chosen. None compares all."""
    adopted: Mapping[str, str] = {}
    """What the paper adopted: option of the second axis of the rows by that of the first."""

    @model_validator(mode="after")
    def _rows_are_methods_and_settings(self) -> Self:
        if len(self.rows) != 2:
            raise field_fault("rows", "must name two axes: methods, then what is tuned of each")
        return self

    def references(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Yield the options that the table names."""
        for method, setting in self.adopted.items():
            yield "adopted", {self.rows[0]: method, self.rows[1]: setting}


TableSpec = Annotated[
    MetricTable
    | DifferenceTable
    | SpeedupTable
    | SupportTable
    | TailTable
    | WallClockTable
    | DensityTable
    | DevelopmentTable
    | SurvivalTable,
    Field(discriminator="kind"),
]
