"""The finished cells of a suite, and the values that they measured as one tidy frame."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from modnorm.analysis.distillation import (
    DistillationDocument,
    best_entry,
    first_search,
    gain_kept,
    is_distillation,
    load_distillation,
    round_directory,
)
from modnorm.analysis.frames import RunFrames
from modnorm.analysis.run import Run, load_run
from modnorm.errors import InvalidInputError
from modnorm.spec.reading import differences
from modnorm.suites.cells import Cell, ensembles_of
from modnorm.suites.loading import LoadedSuite
from modnorm.suites.suite_file import Pick

_IGNORED = ("failures", "name")
"""Sections of a spec that change no answer."""


@dataclass(frozen=True)
class CellOutcome:
    """One finished cell. Of a distillation, the results are those of its first search.

    So each measure of a search is that of the search around the base.
    """

    cell: Cell
    results: Run
    distillation: DistillationDocument | None = None

    @property
    def profile(self) -> str:
        """Digest of the profile that the cell used; empty without one."""
        return str(self.results.document["provenance"].get("profile_digest") or "")


@dataclass(frozen=True)
class SuiteOutcomes:
    """The finished cells of a suite, and their values as tidy frames with a column `cell`."""

    finished: Mapping[str, CellOutcome]
    """By cell id."""
    strangers: Mapping[str, str]
    """The first differing field of each cell whose directory holds a run of other settings."""

    @cached_property
    def searches(self) -> RunFrames:
        """The searches of the cells."""
        names = [{"cell": cell} for cell in self.finished]
        return RunFrames([each.results for each in self.finished.values()], names)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each cell: `base`, and figures of a distillation."""
        rows = []
        for cell, outcome in self.finished.items():
            row: dict[str, object] = {
                "cell": cell,
                "base": _percent(outcome.results.document["base"]["heldout_metric"]),
            }
            if document := outcome.distillation:
                search = first_search(document)
                row["rank_1"] = _percent(search["best_expert"]["metric"])
                row["vote"] = _percent(search["vote"]["metric"])
                row["best_student"] = _percent(best_entry(document)["heldout"]["metric"])
                row["gain_kept"] = _percent(gain_kept(document))
            rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def search_times(self) -> pd.DataFrame:
        """A row for each search: its times."""
        times = self.searches.times.reindex(columns=["cell", *_TIMES])
        # A distillation has no time of one search.
        is_search = [self.finished[cell].distillation is None for cell in times["cell"]]
        known = times[is_search]
        return known.mask(known == 0)

    @cached_property
    def states(self) -> pd.DataFrame:
        """A row for each state after some `updates`; that after 0 is the unperturbed model."""
        rows = []
        for cell, outcome in self.finished.items():
            document = outcome.results.document
            first, entry = document["base"]["heldout_metric"], document["iterative"]
            if entry is not None and first is not None:
                states = [(each["updates"], each["heldout_metric"]) for each in entry["states"]]
                rows += [(cell, updates, _percent(one)) for updates, one in [(0, first), *states]]
        return pd.DataFrame(rows, columns=["cell", "updates", "accuracy"]).dropna()

    @cached_property
    def students(self) -> pd.DataFrame:
        """A row for each round of each distillation."""
        rows = [
            (cell, each["round"], _percent(each["heldout"]["metric"]))
            for cell, outcome in self.finished.items()
            if outcome.distillation is not None
            for each in outcome.distillation["rounds"][1:]
        ]
        return pd.DataFrame(rows, columns=["cell", "round", "accuracy"])

    def frame(self, name: str) -> pd.DataFrame:
        """Return a frame by name."""
        frame: pd.DataFrame = getattr(self if name in _OF_CELLS else self.searches, name)
        return frame


def _percent(value: float | None) -> float:
    return math.nan if value is None else 100 * value


def load_outcomes(cells: Sequence[Cell], directory: Path) -> SuiteOutcomes:
    """Read the results of the finished cells."""
    finished, strangers = {}, {}
    for cell in cells:
        place = directory / cell.id
        distillation = load_distillation(place) if is_distillation(place) else None
        if distillation is None and not (place / "results.json").exists():
            continue
        results = load_run(round_directory(place, 1) if distillation else place)
        field = differing_field(cell, (distillation or results.document)["spec"])
        if field is None:
            finished[cell.id] = CellOutcome(cell, results, distillation)
        else:
            strangers[cell.id] = field
    return SuiteOutcomes(finished, strangers)


def differing_field(cell: Cell, there: Mapping[str, object]) -> str | None:
    """Return the first field in which a stored spec differs from the cell's; None if equal."""
    for field in differences(there, cell.spec.model_dump(mode="json")):
        is_shared_profile = field == "method.profile" and cell.profile_of is not None
        if not is_shared_profile and field.split(".")[0] not in _IGNORED:
            return field
    return None


class Measure(NamedTuple):
    """A kind of value that cells measure."""

    frame: str
    """Frame that holds it, of `SuiteOutcomes` or of its searches."""
    column: str
    keys: tuple[str, ...] = ()
    """`N` and `K` for a measure of an ensemble; `item` if a cell has several values."""
    may_lack: bool = False
    """Whether a finished cell may have no value."""


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "metric": Measure("ensembles", "accuracy", ("N", "K")),
        "evaluations": Measure("ensembles", "evaluations", ("N", "K")),
        "right_experts": Measure("votes", "right_experts", ("N", "K", "item", "correct")),
        "correct": Measure("votes", "correct", ("N", "K", "item")),
        "reward_gain": Measure("candidates", "reward_gain", ("item",)),
        "accuracy_gain": Measure("candidates", "accuracy_gain", ("item",)),
        "base": Measure("cells", "base", may_lack=True),
        "search": Measure("search_times", "search"),
        "end_to_end": Measure("search_times", "end_to_end"),
        "workers": Measure("search_times", "workers", may_lack=True),
        "state": Measure("states", "accuracy", ("item",)),
        "student": Measure("students", "accuracy", ("item",), may_lack=True),
        **{
            name: Measure("cells", name, may_lack=True)
            for name in ("rank_1", "vote", "best_student", "gain_kept")
        },
    }
)
"""Metrics, `base` and states are percentages; gains are percentage points over the unperturbed
model. Items are candidates, held-out rows, updates and rounds. `rank_1` to `gain_kept` are of
distillations only: the first search, then the students."""
_ITEMS = MappingProxyType({"index": "item", "row": "item", "updates": "item", "round": "item"})
_NEED_ALL = frozenset({"reward_gain", "accuracy_gain", "right_experts"})
_OF_CELLS = frozenset({"cells", "search_times", "states", "students"})
_TIMES = ("search", "end_to_end", "workers")


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

    def values(self, measure: str, places: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the rows of a measure.

        `measure` is one of `MEASURES`. The default places are all rows.
        """
        frame, column, keys, may_lack = MEASURES[measure]
        if places is None:
            places = self.ensembles if "N" in keys else self.cells
        found = self.outcomes.frame(frame)
        if column not in found:
            found = pd.DataFrame(columns=["cell", *keys, column])
        # Some measures share a frame, so that a key may be the column itself.
        found = found.assign(value=found[column].astype(float)).rename(columns=dict(_ITEMS))
        values = found[["cell", *keys, "value"]]
        shared = [name for name in values if name in places]
        types = {name: places[name].dtype for name in shared}
        rows = places.merge(values.astype(types), on=shared, how="left")
        lacking = rows["cell"][rows["value"].isna() & rows["cell"].isin(self.outcomes.finished)]
        if len(lacking) and not may_lack:
            needs_all = measure in _NEED_ALL
            raise InvalidInputError(
                f"{lacking.iloc[0]} has not measured {measure}",
                field="population.statistics" if needs_all else "directory",
                remedy="set it to full for this suite" if needs_all else None,
            )
        return rows

    def by_row(
        self, measure: str, rows: Sequence[str]
    ) -> "pd.api.typing.SeriesGroupBy[float, tuple[Hashable, ...]]":
        """Group the values of a measure of cells by the options of rows, and the seed."""
        labels = list(dict.fromkeys([*rows, "seed"]))
        self.check_distinct(self.cells, labels)
        return self.values(measure).groupby(labels, observed=True)["value"]

    def at(self, measure: str, pick: Pick) -> pd.DataFrame:
        """Return the rows of a measure in a place: those of one cell or ensemble for each seed."""
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
        """Refuse places of which two have the same labels."""
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
