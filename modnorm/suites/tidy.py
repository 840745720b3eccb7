"""The tidy table of a suite: a row for each value that its cells measured."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from modnorm.analysis.tail import survival
from modnorm.errors import InvalidInputError
from modnorm.suites.cells import ensembles_of
from modnorm.suites.loading import LoadedSuite
from modnorm.suites.measures import MEASURES
from modnorm.suites.outcomes import CellOutcome, SuiteOutcomes
from modnorm.suites.table_specs import Pick


@dataclass(frozen=True)
class TidySuite:
    """The cells of a suite and the values that the finished ones measured."""

    loaded: LoadedSuite
    outcomes: SuiteOutcomes
    field: str
    """Place of the table that is built, for errors."""

    @cached_property
    def ensembles(self) -> pd.DataFrame:
        """A row for each ensemble of each cell: `cell`, `seed`, `N`, `K` and the axes in order."""
        ensembles = pd.DataFrame(
            [
                {**cell.labels, "cell": cell.id, "seed": cell.seed, "N": population, "K": size}
                for cell in self.loaded.cells
                for population, size in ensembles_of(cell.spec)
            ]
        )
        for axis, options in self.loaded.suite.axes.items():
            ensembles[axis] = pd.Categorical(ensembles[axis], list(options), ordered=True)
        return ensembles

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each cell: the columns of `ensembles` without `N` and `K`."""
        return self.ensembles.drop(columns=["N", "K"]).drop_duplicates("cell", ignore_index=True)

    def finished(self, cells: pd.Series) -> list[CellOutcome]:
        """Return the outcomes of those cells that are finished, each once."""
        found = map(self.outcomes.finished.get, cells.unique())
        return [outcome for outcome in found if outcome is not None]

    def values(self, measure: str, places: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the rows of a measure.

        `measure` is one of `MEASURES`. The default places are all rows.

        Returns:
            The columns of the places, the keys of the measure, and `value`. A place without values
            has one row whose value is missing.

        Raises:
            InvalidInputError: a finished cell did not measure it.
        """
        keys, read = MEASURES[measure].keys, MEASURES[measure].read
        if places is None:
            places = self.ensembles if "N" in keys else self.cells
        rows = [
            (outcome.cell.id, *row)
            for outcome in self.finished(places["cell"])
            for row in read(outcome)
        ]
        values = pd.DataFrame(rows, columns=["cell", *keys, "value"]).astype({"value": float})
        shared = [name for name in values if name in places]
        types = {name: places[name].dtype for name in shared}
        return places.merge(values.astype(types), on=shared, how="left")

    def by_row(
        self, measure: str, rows: Sequence[str]
    ) -> "pd.api.typing.SeriesGroupBy[float, tuple[Hashable, ...]]":
        """Group the values of a measure of cells by the options of rows, and the seed.

        Raises:
            InvalidInputError: several cells of a seed are in one row.
        """
        labels = list(dict.fromkeys([*rows, "seed"]))
        self.check_distinct(self.cells, labels)
        return self.values(measure).groupby(labels, observed=True)["value"]

    def at(self, measure: str, pick: Pick) -> pd.DataFrame:
        """Return the rows of a measure in a place: those of one cell or ensemble for each seed.

        Raises:
            InvalidInputError: no cell is in the place, or several of one seed.
        """
        of_ensembles = "N" in MEASURES[measure].keys
        places = select(self.ensembles if of_ensembles else self.cells, pick)
        if places.empty:
            what = "ensemble" if of_ensembles else "cell"
            raise InvalidInputError(f"{dict(pick)} selects no {what}", field=self.field)
        if places["seed"].duplicated().any():
            raise InvalidInputError(
                f"{dict(pick)} selects several cells of a seed",
                field=self.field,
                remedy="name an option of every axis",
            )
        return self.values(measure, places)

    def by_seed(self, measure: str, pick: Pick) -> "pd.Series[float]":
        """Return the one value that a cell or ensemble has of a measure, by seed."""
        return self.at(measure, pick).set_index("seed")["value"]

    def check_distinct(self, places: pd.DataFrame, labels: Sequence[str]) -> None:
        """Refuse places of which two have the same labels.

        Raises:
            InvalidInputError: names one of them.
        """
        repeated = places[places.duplicated(list(labels))]
        if not repeated.empty:
            raise InvalidInputError(
                f"several cells share a place, for example {repeated['cell'].iloc[0]}",
                field=self.field,
                remedy="name every axis under rows, columns or at, N and K among them",
            )


def select(places: pd.DataFrame, pick: Pick) -> pd.DataFrame:
    """Return the rows that have the options of a pick; cells have no N and K to compare."""
    for axis, option in pick.items():
        if axis in places:
            places = places[places[axis].astype(str) == str(option)]
    return places


def reaching(gains: "pd.Series[float]", least: float) -> float:
    """Return the fraction of gains that reach a threshold; missing until the cell is finished."""
    points = gains.dropna().tolist()
    return survival(points, (least,))[0] if points else math.nan
