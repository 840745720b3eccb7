"""Tables as built: each figure has our values by seed and the paper's."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modnorm.errors import InvalidInputError
from modnorm.suites.table_specs import Labels, Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Printed:
    """A figure of the paper."""

    mean: float
    sd: float | None = None
    """Sample SD; None if the paper prints only a mean."""


@dataclass(frozen=True, slots=True)
class TableFigure:
    """One number of a table."""

    values: Mapping[int, float]
    """By seed, of the finished cells."""
    seeds: int
    """Number of seeds, finished or not, that can have a value."""
    paper: Printed | None = None

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None until a cell is finished."""
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD over the seeds; None with fewer than two."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def is_complete(self) -> bool:
        """Whether the cells of all seeds are finished."""
        return len(self.values) == self.seeds


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of a table."""

    labels: Labels
    figures: tuple[TableFigure, ...]


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table with the figures of all finished cells."""

    title: str
    source: str
    headings: Labels
    """Headings of the row labels."""
    columns: Labels
    rows: tuple[FigureRow, ...]
    digits: int = 2
    notes: tuple[str, ...] = ()
    paper_source: str | None = None
    """None if the paper has no such table."""
    beside: "tuple[BuiltTable, ...]" = ()
    """Tables of additional figures that the plot shows."""

    @property
    def missing(self) -> int:
        """Number of figures that lack the value of a seed."""
        return sum(not figure.is_complete for row in self.rows for figure in row.figures)


def fill(  # noqa: PLR0913 - the parts of a table; most are optional
    spec: Table,
    values: "pd.DataFrame",
    rows: Sequence[str],
    field: str,
    *,
    axes: Sequence[str] = ("column",),
    columns: Mapping[Labels, str] | None = None,
    headings: Sequence[str] | None = None,
    printed_at: Callable[[Labels], Labels] = lambda labels: labels,
) -> BuiltTable:
    """Arrange values in rows and columns.

    Args:
        spec: The declared table.
        values: A row for each figure and seed: the labels, `seed`, and `value`, which is missing
            until the cell is finished. Rows of the table keep the order of these rows.
        rows: The columns of `values` that label the rows.
        field: Place of the table in the suite file, for errors.
        axes: The columns of `values` that label the columns.
        columns: Headings by the labels of a column; when None, the labels in their order.
        headings: Headings of the row labels; the names in `rows` when None.
        printed_at: Returns the place of a figure in the paper's values from its labels.
    """
    figures: dict[Labels, dict[Labels, dict[int, float]]] = {}
    labels = values[[*rows, *axes]].astype(str).itertuples(index=False, name=None)
    for label, seed, value in zip(labels, values["seed"], values["value"], strict=True):
        row, column = label[: len(rows)], label[len(rows) :]
        figures.setdefault(row, {}).setdefault(column, {})[seed] = value
    if columns is None:
        columns = {column: column[0] for row in figures.values() for column in row}

    def figure(row: Labels, column: Labels) -> TableFigure:
        by_seed = figures[row].get(column, {})
        measured = {seed: value for seed, value in by_seed.items() if not math.isnan(value)}
        return TableFigure(
            measured, len(by_seed), _printed(spec, field, printed_at((*row, *column)))
        )

    return BuiltTable(
        title=spec.title,
        source=spec.source,
        headings=tuple(rows if headings is None else headings),
        columns=tuple(columns.values()),
        rows=tuple(
            FigureRow(row, tuple(figure(row, column) for column in columns)) for row in figures
        ),
        digits=spec.digits,
        paper_source=spec.paper.source if spec.paper else None,
    )


def _printed(spec: Table, field: str, labels: Labels) -> Printed | None:
    """Return the paper's figure in a place, whose empty labels do not count; None without one.

    Raises:
        InvalidInputError: it is neither a number, nor a mean and a sample SD.
    """
    here = spec.paper.values if spec.paper else None
    for label in filter(None, labels):
        if not isinstance(here, Mapping):
            break
        here = next((value for key, value in here.items() if str(key) == label), None)
    if here is None or isinstance(here, Mapping):
        return None
    numbers = here if isinstance(here, list | tuple) else [here]
    if len(numbers) not in {1, 2} or not all(type(number) in {int, float} for number in numbers):
        raise InvalidInputError(
            f"{here!r} is neither a mean nor a mean and a sample SD",
            field=".".join((field, "paper.values", *labels)),
        )
    return Printed(*map(float, numbers))
