"""What the finished cells of a suite left in its directory."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from modnorm.analysis.comparison import load_results
from modnorm.analysis.document import ResultsDocument
from modnorm.errors import InvalidInputError
from modnorm.spec.differences import differences
from modnorm.suites.cells import Cell

RESULTS = "results.json"

_IGNORED = ("failures", "name")
"""Sections of a spec that change no answer."""


@dataclass(frozen=True)
class Candidate:
    """What the tables need of one scored candidate; fractions."""

    index: int
    """Place in the population, from 0."""
    reward: float
    accuracy: float | None
    """None where no answers are stored."""


@dataclass(frozen=True)
class Outcome:
    """One finished cell."""

    cell: Cell
    directory: Path
    document: ResultsDocument

    def metric(self, population: int, ensemble_size: int) -> float | None:
        """Return the held-out metric of an (N, K), a fraction; None where it has none."""
        for entry in self.document["ensembles"]:
            if (entry["population"], entry["ensemble_size"]) == (population, ensemble_size):
                return entry["metric"]
        return None

    def cost(self, population: int, ensemble_size: int) -> int | None:
        """Return the evaluations of an (N, K) alone; None where they were not counted."""
        for entry in self.document["ensembles"]:
            if (entry["population"], entry["ensemble_size"]) == (population, ensemble_size):
                budget = entry.get("budget")
                return budget["total"] if budget else None
        return None

    @property
    def profile(self) -> str:
        """Digest of the profile that it used; empty where it used none."""
        return str(self.document["provenance"].get("profile_digest") or "")

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The scored candidates in order."""
        return tuple(_candidate(row) for row in self._rows if row["selection_reward"])

    @property
    def has_stopped_candidates(self) -> bool:
        """Whether some candidate, though not failed, did not answer every selection row."""
        rows = self.document["data"]["selection"]["rows"]
        return any(
            row["state"] != "failed"
            and (
                not row["selection_reward"]
                or row.get("selection_answers") not in {None, str(rows)}
            )
            for row in self._rows
        )

    @cached_property
    def _rows(self) -> tuple[Mapping[str, str], ...]:
        with (self.directory / "candidates.csv").open(newline="", encoding="utf-8") as file:
            return tuple(csv.DictReader(file))

    @cached_property
    def timings(self) -> Mapping[str, object]:
        """Content of `timings.json`."""
        text = (self.directory / "timings.json").read_text(encoding="utf-8")
        return cast("Mapping[str, object]", json.loads(text))

    def votes(self, population: int, ensemble_size: int) -> tuple[tuple[int, bool], ...]:
        """Return, of each held-out row, how many experts are right and whether the vote is.

        Raises:
            InvalidInputError: some experts left rows out whose vote was settled.
        """
        with (self.directory / "votes.jsonl").open(encoding="utf-8") as lines:
            found = [
                vote
                for vote in map(json.loads, lines)
                if (vote["population"], vote["ensemble_size"]) == (population, ensemble_size)
            ]
        if any(vote.get("skipped") for vote in found):
            raise InvalidInputError(
                f"experts of {self.cell.id} left rows out whose vote was settled",
                field="population.statistics",
                remedy="set it to full for this suite",
            )
        return tuple((vote["correct_support"], vote["correct"]) for vote in found)


@dataclass(frozen=True)
class Outcomes:
    """The finished cells of a suite."""

    finished: Mapping[str, Outcome]
    """By cell."""
    strangers: Mapping[str, str]
    """Cells whose directory holds a run of other settings, and the first that differs."""

    def of(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell; None while it has none."""
        return self.finished.get(cell.id)


def load_outcomes(cells: Sequence[Cell], directory: Path) -> Outcomes:
    """Read what is there of the cells of a suite.

    Args:
        cells: The cells.
        directory: Where each has a directory of its own.

    Raises:
        InvalidInputError: a result is there, but cannot be read.
    """
    finished, strangers = {}, {}
    for cell in cells:
        place = directory / cell.id
        if not (place / RESULTS).exists():
            continue
        document = load_results(place).document
        fault = differing_field(cell, document["spec"])
        if fault is None:
            finished[cell.id] = Outcome(cell, place, document)
        else:
            strangers[cell.id] = fault
    return Outcomes(finished, strangers)


def differing_field(cell: Cell, there: Mapping[str, object]) -> str | None:
    """Return the first field in which a run is not that of a cell; None when it is."""
    here = cell.spec.model_dump(mode="json")
    for field in differences(there, here):
        if field == "method.profile" and cell.profile_of is not None:
            continue
        if field.split(".")[0] not in _IGNORED:
            return field
    return None


def _candidate(row: Mapping[str, str]) -> Candidate:
    try:
        index = int(row["index"])
        answers = int(row.get("selection_answers") or 0)
        correct = int(row.get("selection_correct") or 0)
        reward = float(row["selection_reward"])
    except ValueError as error:
        raise InvalidInputError(
            f"candidates.csv is damaged: {error}", field="directory"
        ) from error
    return Candidate(index, reward, correct / answers if answers else None)
