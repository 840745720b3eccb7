"""State of each cell of a suite, read from its directory and, on request, from the lab."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from modnorm.client.calls import get_experiment
from modnorm.client.client import Client
from modnorm.client.rundir import is_held
from modnorm.client.watch import TERMINAL_STATES
from modnorm.errors import NotFoundError
from modnorm.suites.cells import Cell
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.running.journal import CellRecord, CellState, Journal
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

INTERRUPTED = "interrupted"
"""State of a cell whose command ended after it submitted the cell."""
IN_THE_LAB = "in the lab"
"""State of an interrupted cell that the lab works on."""
ENDED_IN_THE_LAB = "ended in the lab"
"""State of an interrupted cell that ended in the lab; the next run fetches it."""


@dataclass(frozen=True, slots=True)
class CellStatus:
    """State of one cell."""

    cell: str
    state: str
    record: CellRecord

    def as_dict(self) -> dict[str, object]:
        """Return the status as JSON values."""
        return {"cell": self.cell, **asdict(self.record), "state": self.state}


def suite_status(
    suite: str, cells: Sequence[Cell], directory: Path, client: Client | None = None
) -> tuple[CellStatus, ...]:
    """Return the status of every cell.

    The directory need not exist yet. A client asks the lab about interrupted cells.
    """
    outcomes = load_outcomes(cells, directory)
    journal = Journal(directory, suite)
    is_running = is_held(directory)
    statuses = []
    for cell in cells:
        record = journal.record(cell.id)
        state = str(record.state)
        if outcomes.of(cell) is not None:
            state = str(CellState.FINISHED)
        elif record.state is CellState.FINISHED:
            state = str(CellState.WAITING)  # its results were deleted
        elif record.state is CellState.SUBMITTED and not is_running:
            state = INTERRUPTED
            if client is not None:
                state, record = _in_the_lab(record, client)
        statuses.append(CellStatus(cell.id, state, record))
    return tuple(statuses)


def _in_the_lab(record: CellRecord, client: Client) -> tuple[str, CellRecord]:
    """Return the state and record of a cell in the lab, which may be another lab than before."""
    try:
        experiment = client.call(get_experiment(record.experiment))
    except NotFoundError:
        return INTERRUPTED, record
    state = ENDED_IN_THE_LAB if experiment.state in TERMINAL_STATES else IN_THE_LAB
    return state, replace(record, **lab_progress(experiment))  # type: ignore[arg-type]  # by name


def lab_progress(experiment: experiments.Experiment) -> dict[str, str | int]:
    """Return the fields of a cell's record that follow its experiment."""
    return {
        "phase": state_name(experiment.state),
        "done": experiment.progress.jobs_done,
        "total": experiment.progress.jobs_total,
        "waits_for": experiment.waits_for,
    }


def count_states(statuses: Sequence[CellStatus]) -> dict[str, int]:
    """Return the number of cells in each state."""
    return dict(Counter(status.state for status in statuses))
