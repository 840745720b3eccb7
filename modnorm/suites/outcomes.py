"""The finished cells of a suite, and the values that they measured as one tidy frame."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pandas as pd

from modnorm.analysis import frames
from modnorm.analysis.distillation import (
    DistillationDocument,
    best_entry,
    first_search,
    gain_kept,
    is_distillation,
    load_distillation,
    round_directory,
)
from modnorm.analysis.run import Run, load_run
from modnorm.analysis.run_files import RESULTS
from modnorm.errors import InvalidInputError
from modnorm.spec.reading import differences
from modnorm.suites.cells import Cell, changes_sizes, ensembles_of
from modnorm.suites.loading import LoadedSuite
from modnorm.suites.suite_file import Pick

_IGNORED = ("failures", "name")
"""Sections of a spec that change no answer."""
_SIZES = frozenset({"population.size", "population.prefixes", "population.ensemble_sizes"})
"""Fields that decide how many candidates and which (N, K) there are, but change none of them."""


def _figures(run: Run, document: DistillationDocument | None) -> pd.DataFrame:
    """Return one row: `base`, and figures of a distillation."""
    row = {"base": run.base.heldout_metric}
    if document is not None:
        search = first_search(document)
        row["rank_1"] = search["best_expert"]["metric"]
        row["vote"] = search["vote"]["metric"]
        row["best_student"] = best_entry(document)["heldout"]["metric"]
        row["gain_kept"] = gain_kept(document)
    return 100 * pd.DataFrame([row], dtype=float)


def _search_times(run: Run, document: DistillationDocument | None) -> pd.DataFrame:
    """Return one row with the times of a search; a distillation has no time of one search."""
    times = frames.times(run).reindex(columns=["search", "end_to_end", "workers"])
    return times.mask(times == 0) if document is None else times[:0]


def _states(run: Run, _document: DistillationDocument | None) -> pd.DataFrame:
    """Return a row for each state after some updates; that after 0 is the unperturbed model."""
    first, entry = run.base.heldout_metric, run.document["iterative"]
    rows: list[tuple[int, float | None]] = []
    if entry is not None and first is not None:
        states = [(each["updates"], each["heldout_metric"]) for each in entry["states"]]
        rows = [(0, first), *states]
    found = pd.DataFrame(rows, columns=["updates", "accuracy"]).dropna()
    return found.assign(accuracy=100 * found["accuracy"].astype(float))


def _students(_run: Run, document: DistillationDocument | None) -> pd.DataFrame:
    rounds = document["rounds"][1:] if document else []
    rows = [(each["round"], each["heldout"]["metric"]) for each in rounds]
    found = pd.DataFrame(rows, columns=["round", "accuracy"])
    return found.assign(accuracy=100 * found["accuracy"].astype(float))


_Read = Callable[[Run, DistillationDocument | None], pd.DataFrame]
_OF_CELLS: Mapping[str, _Read] = MappingProxyType(
    {"figures": _figures, "search_times": _search_times, "states": _states, "students": _students}
)


def load_finished(
    cells: Sequence[Cell], directory: Path
) -> tuple[dict[str, Run], dict[str, DistillationDocument], dict[str, str]]:
    """Return runs and distillations of finished cells, and a differing field of other cells' runs.

    All are by cell. Of a distillation, the run is that of its first search, around the base.
    """
    finished, documents, strangers = {}, {}, {}
    for cell in cells:
        place = directory / cell.id
        distillation = load_distillation(place) if is_distillation(place) else None
        if distillation is None and not (place / RESULTS).exists():
            continue
        run = load_run(round_directory(place, 1) if distillation else place)
        field = differing_field(cell, (distillation or run.document)["spec"])
        if field is not None:
            strangers[cell.id] = field
            continue
        finished[cell.id] = run
        if distillation:
            documents[cell.id] = distillation
    return finished, documents, strangers


def profile_digest(run: Run) -> str:
    """Return the digest of the profile that a run used; empty without one."""
    return str(run.provenance.get("profile_digest") or "")


def differing_field(
    cell: Cell, there: Mapping[str, object], *, apart_from: Collection[str] = ()
) -> str | None:
    """Return the first field in which a stored spec differs from the cell's; None if equal."""
    for name in differences(there, cell.spec.model_dump(mode="json")):
        is_shared_profile = name == "method.profile" and cell.profile_of is not None
        may_reuse = name == "reuse" and cell.spec.reuse  # else its times would be of other runs
        is_ignored = name.split(".")[0] in _IGNORED or name in apart_from
        if not is_shared_profile and not may_reuse and not is_ignored:
            return name
    return None


def find_stand_ins(cell: Cell, runs: Iterable[Run]) -> Sequence[Run]:
    """Return the runs that have some (N, K) of a cell, those with the most first.

    They differ from the cell only in population size, prefixes and ensemble sizes. Nested
    populations of one seed begin with the same candidates, so an equal (N, K) has equal values,
    but for rounding. With another size an iterative method makes other updates.
    """
    spec, wanted = cell.spec, {*ensembles_of(cell.spec)}
    if spec.population.pool != "nested" or spec.iterative or spec.distillation:
        return ()
    fitting = {}
    for run in runs:
        shared = wanted & {each.place for each in run.ensembles}
        if shared and not differing_field(cell, run.document["spec"], apart_from=_SIZES):
            fitting[run] = (len(shared), candidate_count(run))
    return sorted(fitting, key=fitting.__getitem__, reverse=True)


def candidate_count(run: Run) -> int:
    """Return the number of candidates in the population of a run."""
    return run.document["candidates"]["total"]


class Measure(NamedTuple):
    """A kind of value that cells measure."""

    frame: str
    """Function that reads the frame which holds it, of `modnorm.analysis.frames` or of cells."""
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
        "base": Measure("figures", "base", may_lack=True),
        "search": Measure("search_times", "search"),
        "end_to_end": Measure("search_times", "end_to_end"),
        "workers": Measure("search_times", "workers", may_lack=True),
        "state": Measure("states", "accuracy", ("item",)),
        "student": Measure("students", "accuracy", ("item",), may_lack=True),
        **{
            name: Measure("figures", name, may_lack=True)
            for name in ("rank_1", "vote", "best_student", "gain_kept")
        },
    }
)
"""Metrics, `base` and states are percentages; gains are percentage points over the unperturbed
model. Items are candidates, held-out rows, updates and rounds. `rank_1` to `gain_kept` are of
distillations only: the first search, then the students."""
_OF_STAND_INS = frozenset({"ensembles", "votes", "candidates", "figures"})
"""Frames whose values do not depend on the size of the population: no times."""
_ITEMS = MappingProxyType({"index": "item", "row": "item", "updates": "item", "round": "item"})


@dataclass(frozen=True)
class TidySuite:
    """The cells of a suite and the values that the finished ones measured."""

    loaded: LoadedSuite
    runs: Mapping[str, Run]
    """Runs of the finished cells, by cell."""
    documents: Mapping[str, DistillationDocument]
    """Of those that are distillations."""
    strangers: Mapping[str, str]
    """The first differing field of each cell whose directory holds a run of other settings."""
    place: str = "tables"
    """Field of the table that is built, for errors."""
    stand_ins: Mapping[str, Run] = field(default_factory=dict)
    """Runs of other population sizes for cells without a run, by cell; see `find_stand_ins`."""
    _read: dict[tuple[str, str], pd.DataFrame] = field(default_factory=dict)
    """Frames that were read, by cell and name."""

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

    def _frame(self, cell: Cell, name: str) -> pd.DataFrame:
        """Return a frame of a cell's run or stand-in by the name of the function that reads it."""
        if (cell.id, name) not in self._read:
            run = self.runs.get(cell.id) or self.stand_ins[cell.id]
            read, document = _OF_CELLS.get(name), self.documents.get(cell.id)
            lines = getattr(frames, name)(run) if read is None else read(run, document)
            if name == "candidates" and cell.id not in self.runs:  # a stand-in may have more
                lines = lines[lines["index"] < cell.spec.population.size]
            self._read[cell.id, name] = lines.assign(cell=cell.id)
        return self._read[cell.id, name]

    def _has(self, cell: Cell, frame: str, population: int | None) -> bool:
        """Return whether a cell has a run, or a stand-in that gives a frame."""
        if cell.id in self.runs:
            return True
        run = self.stand_ins.get(cell.id)
        if run is None or frame not in _OF_STAND_INS:
            return False
        least = cell.spec.population.size if population is None else population
        return frame != "candidates" or candidate_count(run) >= least

    def values(
        self, measure: str, places: pd.DataFrame | None = None, *, population: int | None = None
    ) -> pd.DataFrame:
        """Return the rows of a measure.

        `measure` is one of `MEASURES`. The default places are all rows. A stand-in gives gains of
        candidates only if its population has at least this size, by default the cell's.
        """
        frame, column, keys, may_lack = MEASURES[measure]
        if places is None:
            places = self.ensembles if "N" in keys else self.cells
        wanted = {*places["cell"]}
        finished = (
            cell
            for cell in self.loaded.cells
            if cell.id in wanted and self._has(cell, frame, population)
        )
        parts = [part for cell in finished if column in (part := self._frame(cell, frame))]
        columns = ["cell", *keys, column]
        found = pd.concat(parts) if parts else pd.DataFrame(columns=columns)
        # Some measures share a frame, so that a key may be the column itself.
        found = found.assign(value=found[column].astype(float)).rename(columns=dict(_ITEMS))
        values = found[["cell", *keys, "value"]]
        shared = [name for name in values if name in places]
        types = {name: places[name].dtype for name in shared}
        rows = places.merge(values.astype(types), on=shared, how="left")
        lacking = rows["cell"][rows["value"].isna() & rows["cell"].isin(self.runs)]
        if len(lacking) and not may_lack:
            raise InvalidInputError(
                f"{lacking.iloc[0]} has not measured {measure}", field="directory"
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
        if places.empty and not changes_sizes(self.loaded.settings):
            what = "ensemble" if of_ensembles else "cell"
            raise InvalidInputError(f"{dict(pick)} selects no {what}", field=self.place)
        if places["seed"].duplicated().any():
            raise InvalidInputError(
                f"{dict(pick)} selects several cells of a seed",
                field=self.place,
                remedy="name an option of every axis",
            )
        population = int(pick["N"]) if "N" in pick else None
        return self.values(measure, places, population=population)

    def by_seed(self, measure: str, pick: Pick) -> "pd.Series[float]":
        """Return the one value that a cell or ensemble has of a measure, by seed."""
        return self.at(measure, pick).set_index("seed")["value"]

    def check_distinct(self, places: pd.DataFrame, labels: Sequence[str]) -> None:
        """Refuse places of which two have the same labels."""
        repeated = places[places.duplicated(list(labels))]
        if not repeated.empty:
            raise InvalidInputError(
                f"several cells share a place, for example {repeated['cell'].iloc[0]}",
                field=self.place,
                remedy="name every axis under rows, columns or at, N and K among them",
            )


def read_suite(loaded: LoadedSuite, directory: Path) -> TidySuite:
    return TidySuite(loaded, *load_finished(loaded.cells, directory))


def select(places: pd.DataFrame, pick: Pick) -> pd.DataFrame:
    """Return the rows that have the options of a pick; cells have no N and K to compare."""
    for axis, option in pick.items():
        if axis in places:
            places = places[places[axis].astype(str) == str(option)]
    return places
