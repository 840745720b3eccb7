"""The finished cells of a suite, read from its directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.analysis.comparison import load_results
from modnorm.analysis.distillation import (
    DistillationDocument,
    is_distillation,
    load_distillation,
    round_directory,
)
from modnorm.analysis.document import ResultsDocument
from modnorm.spec.reading import differences
from modnorm.suites.cells import Cell

_IGNORED = ("failures", "name")
"""Sections of a spec that change no answer."""


@dataclass(frozen=True)
class CellOutcome:
    """One finished cell. Of a distillation, directory and document are those of its first search.

    So each measure of a search is that of the search around the base.
    """

    cell: Cell
    directory: Path
    document: ResultsDocument
    distillation: DistillationDocument | None = None

    @property
    def profile(self) -> str:
        """Digest of the profile that the cell used; empty without one."""
        return str(self.document["provenance"].get("profile_digest") or "")


@dataclass(frozen=True)
class SuiteOutcomes:
    """The finished cells of a suite."""

    finished: Mapping[str, CellOutcome]
    """By cell id."""
    strangers: Mapping[str, str]
    """The first differing field of each cell whose directory holds a run of other settings."""

    def of(self, cell: Cell) -> CellOutcome | None:
        """Return the outcome of a cell; None until the cell is finished."""
        return self.finished.get(cell.id)


def load_outcomes(cells: Sequence[Cell], directory: Path) -> SuiteOutcomes:
    """Read the results of the finished cells.

    Raises:
        InvalidInputError: a result cannot be read.
    """
    finished, strangers = {}, {}
    for cell in cells:
        outcome = _outcome(cell, directory / cell.id)
        if outcome is None:
            continue
        field = differing_field(cell, (outcome.distillation or outcome.document)["spec"])
        if field is None:
            finished[cell.id] = outcome
        else:
            strangers[cell.id] = field
    return SuiteOutcomes(finished, strangers)


def _outcome(cell: Cell, place: Path) -> CellOutcome | None:
    """Read what a directory holds; None if it holds no results."""
    if is_distillation(place):
        first = round_directory(place, 1)
        return CellOutcome(cell, first, load_results(first).document, load_distillation(place))
    if not (place / "results.json").exists():
        return None
    return CellOutcome(cell, place, load_results(place).document)


def differing_field(cell: Cell, there: Mapping[str, object]) -> str | None:
    """Return the first field in which a stored spec differs from the cell's; None if equal."""
    for field in differences(there, cell.spec.model_dump(mode="json")):
        is_shared_profile = field == "method.profile" and cell.profile_of is not None
        if not is_shared_profile and field.split(".")[0] not in _IGNORED:
            return field
    return None
