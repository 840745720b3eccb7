"""How far a suite is, read from its directory."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from modnorm.client.rundir import lock_file
from modnorm.client.suites.journal import CellRecord, CellState, Journal
from modnorm.suites.cells import Cell
from modnorm.suites.outcomes import load_outcomes

BROKEN_OFF = "broken off"
"""State of a cell that was submitted by a command that has ended since."""


@dataclass(frozen=True, slots=True)
class CellStanding:
    """One cell."""

    cell: str
    state: str
    record: CellRecord

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"cell": self.cell, **asdict(self.record), "state": self.state}


def suite_standing(suite: str, cells: Sequence[Cell], directory: Path) -> tuple[CellStanding, ...]:
    """Tell the state of every cell; nothing is changed.

    Args:
        suite: Its name.
        cells: The cells.
        directory: The directory of the suite; it need not be there yet.
    """
    outcomes = load_outcomes(cells, directory)
    journal = Journal(directory, suite)
    working = is_held(directory)
    found = []
    for cell in cells:
        record = journal.record(cell.id)
        state = str(record.state)
        if outcomes.of(cell) is not None:
            state = str(CellState.FINISHED)
        elif record.state is CellState.FINISHED:
            state = str(CellState.WAITING)  # its results were taken away
        elif record.state is CellState.SUBMITTED and not working:
            state = BROKEN_OFF
        found.append(CellStanding(cell.id, state, record))
    return tuple(found)


def count_states(standings: Sequence[CellStanding]) -> dict[str, int]:
    """Return how many cells are in each state."""
    return dict(Counter(standing.state for standing in standings))


def is_held(directory: Path) -> bool:
    """Tell whether a process works on a directory."""
    path = lock_file(directory)
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
