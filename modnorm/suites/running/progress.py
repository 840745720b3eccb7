"""How far a suite is, read from its directory."""

import fcntl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from modnorm.client.rundir import lock_file
from modnorm.client.watch import TERMINAL_STATES
from modnorm.errors import NotFoundError
from modnorm.suites.cells import Cell
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.running.journal import CellRecord, CellState, Journal
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

BROKEN_OFF = "broken off"
"""State of a cell that was submitted by a command that has ended since."""
IN_THE_LAB = "in the lab"
"""The same, where the lab says that it works on it."""
ENDED_IN_THE_LAB = "ended in the lab"
"""The same, where it has ended there: the next run fetches it."""

Ask = Callable[[str], experiments.Experiment]
"""Returns an experiment by its id."""


@dataclass(frozen=True, slots=True)
class CellStanding:
    """One cell."""

    cell: str
    state: str
    record: CellRecord

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"cell": self.cell, **asdict(self.record), "state": self.state}


def suite_standing(
    suite: str, cells: Sequence[Cell], directory: Path, ask: Ask | None = None
) -> tuple[CellStanding, ...]:
    """Tell the state of every cell; nothing is changed.

    Args:
        suite: Its name.
        cells: The cells.
        directory: The directory of the suite; it need not be there yet.
        ask: Asks the lab for what was broken off; None to leave it alone.
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
            state, record = (BROKEN_OFF, record) if ask is None else _asked(record, ask)
        found.append(CellStanding(cell.id, state, record))
    return tuple(found)


def _asked(record: CellRecord, ask: Ask) -> tuple[str, CellRecord]:
    """Return what the lab says of a cell; another one may have been given it."""
    try:
        experiment = ask(record.experiment)
    except NotFoundError:
        return BROKEN_OFF, record
    progress = experiment.progress
    now = replace(
        record,
        phase=state_name(experiment.state),
        done=progress.jobs_done,
        total=progress.jobs_total,
        waits_for=experiment.waits_for,
    )
    return (ENDED_IN_THE_LAB if experiment.state in TERMINAL_STATES else IN_THE_LAB), now


def count_states(standings: Sequence[CellStanding]) -> dict[str, int]:
    """Return how many cells are in each state."""
    return dict(Counter(standing.state for standing in standings))


def is_held(directory: Path) -> bool:
    """Tell whether a process works on a directory, which may be another's to write."""
    path = lock_file(directory)
    if not path.exists():
        return False
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # who works there has it alone
        except BlockingIOError:
            return True
    return False
