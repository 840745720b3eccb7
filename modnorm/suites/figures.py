"""Numbers of a table: ours over the seeds, and what the paper prints in the same place."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modnorm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper prints."""

    mean: float
    sd: float | None = None
    """Sample SD; None where only a mean is printed."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a table."""

    values: Mapping[int, float]
    """By seed, of the cells that are finished."""
    seeds: int
    """How many seeds there are."""
    paper: Printed | None = None

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None while no cell is finished."""
        return statistics.fmean(self.values.values()) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD over the seeds; None with fewer than two."""
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    @property
    def is_complete(self) -> bool:
        """Whether every seed is in."""
        return len(self.values) == self.seeds


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A row of a table."""

    labels: tuple[str, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class BuiltTable:
    """A table as far as it can be filled by now."""

    title: str
    source: str
    headings: tuple[str, ...]
    """Of the labels of the rows."""
    columns: tuple[str, ...]
    rows: tuple[FigureRow, ...]
    digits: int = 2
    notes: tuple[str, ...] = ()
    paper_source: str | None = None
    """None where the paper has no such table."""
    beside: "tuple[BuiltTable, ...]" = ()
    """Tables of what its plot shows besides."""

    @property
    def missing(self) -> int:
        """Figures that lack a seed or all of them."""
        return sum(not figure.is_complete for row in self.rows for figure in row.figures)


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """The paper's numbers, found by the labels of a row and a column."""

    values: object
    field: str
    """Place in the suite file, for errors."""

    def find(self, labels: Sequence[str]) -> Printed | None:
        """Return what is printed in a place; None where the paper has nothing there.

        Raises:
            InvalidInputError: it is neither a number, nor a mean and a sample SD.
        """
        here = self.values
        for label in labels:
            if not isinstance(here, Mapping):
                break
            here = next((value for key, value in here.items() if str(key) == label), None)
        if here is None or isinstance(here, Mapping):
            return None
        return self._printed(here, labels)

    def _printed(self, found: object, labels: Sequence[str]) -> Printed:
        several = found if isinstance(found, list | tuple) else [found]
        numbers = [
            float(n) for n in several if isinstance(n, int | float) and not isinstance(n, bool)
        ]
        if len(numbers) != len(several) or len(numbers) not in {1, 2}:
            raise InvalidInputError(
                f"{found!r} is neither a mean nor a mean and a sample SD",
                field=f"{self.field}.{'.'.join(labels)}",
            )
        return Printed(*numbers)
