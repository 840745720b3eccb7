"""The finished cells of a suite, read from its directory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.analysis.comparison import load_results
from modnorm.analysis.document import ResultsDocument
from modnorm.spec.differences import differences
from modnorm.suites.cells import Cell

_IGNORED = ("failures", "name")
"""Sections of a spec that change no answer."""


@dataclass(frozen=True)
class Outcome:
    """One finished cell."""

    cell: Cell
    directory: Path
    document: ResultsDocument

    @property
    def profile(self) -> str:
        """Digest of the profile that the cell used; empty without one."""
        return str(self.document["provenance"].get("profile_digest") or "")


@dataclass(frozen=True)
class Outcomes:
    """The finished cells of a suite."""

    finished: Mapping[str, Outcome]
    """By cell id."""
    strangers: Mapping[str, str]
    """The first differing field of each cell whose directory holds a run of other settings."""

    def of(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell; None until the cell is finished."""
        return self.finished.get(cell.id)


def load_outcomes(cells: Sequence[Cell], directory: Path) -> Outcomes:
    """Read the results of the finished cells.

    Raises:
        InvalidInputError: a result cannot be read.
    """
    finished, strangers = {}, {}
    for cell in cells:
        place = directory / cell.id
        if not (place / "results.json").exists():
            continue
        document = load_results(place).document
        field = _differing_field(cell, document["spec"])
        if field is None:
            finished[cell.id] = Outcome(cell, place, document)
        else:
            strangers[cell.id] = field
    return Outcomes(finished, strangers)


def _differing_field(cell: Cell, there: Mapping[str, object]) -> str | None:
    """Return the first field in which a stored spec differs from the cell's; None if equal."""
    for field in differences(there, cell.spec.model_dump(mode="json")):
        is_shared_profile = field == "method.profile" and cell.profile_of is not None
        if not is_shared_profile and field.split(".")[0] not in _IGNORED:
            return field
    return None
