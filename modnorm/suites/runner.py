"""Runs a suite: submits cells in order, several at a time, and follows each to its end.

`suite_status` reads the state of the cells from their directory.

The request id is made from a cell's spec, so a cell is the same experiment in every suite and
command. The next run retries failed cells and reuses their finished jobs.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from modnorm.client.client import Client
from modnorm.client.connection import TERMINAL_STATES, Reconnection, get_experiment
from modnorm.client.run_directory import RunDirectory, is_held
from modnorm.errors import ConflictError, ModnormError, NotFoundError, UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.suites.cells import Cell
from modnorm.suites.journal import CellRecord, CellState, Journal
from modnorm.suites.outcomes import load_finished
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name
from modnorm.wire.run_messages import extent, with_remedy

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two polls of the experiments in flight."""

ResultT = TypeVar("ResultT")
Submit = Callable[[ExperimentSpec, Collection[str]], experiments.Experiment]
"""Submits a spec or returns its experiment; receives the ids of the experiments in flight."""
Listener = Callable[[Cell, CellRecord], None]
"""Receives every changed record."""
Finish = Callable[[experiments.Experiment, RunDirectory], object]
"""Writes the files of a finished cell."""


@dataclass
class SuiteRunner:
    """The cells of a suite on one lab; `run` may be called once."""

    client: Client
    cells: Sequence[Cell]
    directory: Path
    """Held by the caller; each cell has its own directory in it."""
    journal: Journal
    submit: Submit
    finish: Finish
    profiles: dict[str, str]
    """Profiles by the cell that calibrated them; empty if that failed. The caller gives those of
    finished cells, and of cells that need not run; the runner adds the others."""
    in_flight: int = 1
    """Experiments at a time."""
    patience: float = 0.0
    """Seconds that a lab may be away after it answered once."""
    listen: Listener = lambda _cell, _record: None
    _waiting: list[Cell] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)
    """Experiment by cell."""
    _has_answered: bool = False

    def run(self) -> bool:
        """Run all unfinished cells; return whether every cell is finished."""
        self._find_waiting()
        pause = FIRST_PAUSE
        while self._waiting or self._running:
            moves = [self._start_some()]
            moves += [self._follow(cell) for cell in self.cells if cell.id in self._running]
            if not self._running and not any(moves):
                for cell in self._waiting:  # for a profile that no cell of this run makes
                    reason = f"{cell.profile_of}, whose profile it uses, is not among the cells"
                    self._fail(cell, ModnormError(reason, remedy="run that cell too"))
                self._waiting.clear()
                break
            pause = FIRST_PAUSE if any(moves) else min(pause * 1.5, LONGEST_PAUSE)
            if self._running:
                time.sleep(pause)
        return all(self.journal.record(cell.id).state is CellState.FINISHED for cell in self.cells)

    def _find_waiting(self) -> None:
        """Separate finished from waiting cells before any is submitted."""
        finished, _, strangers = load_finished(self.cells, self.directory)
        for cell in self.cells:
            if cell.id in strangers:
                raise ConflictError(
                    f"{self.directory / cell.id} holds a run of other settings",
                    field=f"{cell.id}: {strangers[cell.id]}",
                    remedy="name another directory with --out",
                )
            if cell.id not in finished:
                self._waiting.append(cell)
            elif self.journal.record(cell.id).state is not CellState.FINISHED:
                self._note(cell, state=CellState.FINISHED, error="")

    def _start_some(self) -> bool:
        """Submit waiting cells up to the limit; return whether one was handled."""
        has_moved = False
        for cell in list(self._waiting):
            if len(self._running) >= self.in_flight:
                break
            if cell.profile_of is not None and cell.profile_of not in self.profiles:
                continue
            self._waiting.remove(cell)
            self._attempt(cell, partial(self._start, cell))
            has_moved = True
        return has_moved

    def _start(self, cell: Cell) -> None:
        spec = self._with_profile(cell)
        place = RunDirectory(self.directory / cell.id)
        place.check(spec)
        experiment = self.submit(spec, self._running.values())
        place.reserve(spec)
        self._running[cell.id] = experiment.id
        self._note(cell, state=CellState.SUBMITTED, experiment=experiment.id, error="")

    def _attempt(self, cell: Cell, action: Callable[[], None]) -> None:
        """Do something for a cell; a fault of this cell does not stop the others."""
        try:
            self._patiently(action)
        except ModnormError as error:
            if isinstance(error, UnavailableError):
                next(iter(self.client.list()), None)  # raises if the lab itself is away
            self._fail(cell, error)

    def _patiently(self, call: Callable[[], ResultT]) -> ResultT:
        """Repeat a call while a lab that answered once is away."""
        connection = Reconnection(self.patience if self._has_answered else 0.0)
        while True:
            try:
                result = call()
            except UnavailableError as error:
                time.sleep(connection.pause(error))
            else:
                self._has_answered = True
                return result

    def _with_profile(self, cell: Cell) -> ExperimentSpec:
        if cell.profile_of is None:
            return cell.spec
        digest = self.profiles[cell.profile_of]
        if not digest:
            raise ConflictError(
                f"the cell {cell.profile_of}, whose profile this cell uses, has no profile",
                field="method.profile",
                remedy="fix that cell first",
            )
        return cell.with_profile(digest)

    def _follow(self, cell: Cell) -> bool:
        """Read the experiment of a cell; return whether it has ended."""
        identity = self._running[cell.id]
        try:
            experiment = self._patiently(lambda: get_experiment(self.client, identity))
        except NotFoundError as error:  # an operator removed it
            del self._running[cell.id]
            self._fail(cell, error)
            return True
        if experiment.provenance.profile_digest:
            self.profiles[cell.id] = experiment.provenance.profile_digest
        if experiment.state not in TERMINAL_STATES:
            done, total, _ = extent(experiment)
            phase, reason = state_name(experiment.state), experiment.waits_for
            self._note(cell, phase=phase, done=done, total=total, waits_for=reason)
            return False
        if experiment.state == experiments.EXPERIMENT_STATE_SUCCEEDED:
            self._attempt(cell, partial(self._finish, cell, experiment))
        else:
            reason = with_remedy(experiment.error, experiment.remedy)
            self._fail(cell, ModnormError(reason or "it was cancelled"))
        del self._running[cell.id]
        return True

    def _finish(self, cell: Cell, experiment: experiments.Experiment) -> None:
        self.finish(experiment, RunDirectory(self.directory / cell.id))
        self.profiles.setdefault(cell.id, "")
        phase = state_name(experiment.state)
        self._note(cell, state=CellState.FINISHED, phase=phase, waits_for="", error="")

    def _fail(self, cell: Cell, error: ModnormError) -> None:
        self.profiles.setdefault(cell.id, "")
        self._note(cell, state=CellState.FAILED, waits_for="", error=str(error))

    def _note(self, cell: Cell, **changes: object) -> None:
        before = self.journal.record(cell.id)
        after = self.journal.note(cell.id, **changes)
        if after != before:
            self.listen(cell, after)


def suite_status(suite: str, cells: Sequence[Cell], directory: Path) -> dict[str, CellRecord]:
    """Return the record of every cell by its id; the directory need not exist yet."""
    finished, *_ = load_finished(cells, directory)
    journal = Journal(directory, suite)
    is_running = is_held(directory)
    records = {}
    for cell in cells:
        record = journal.record(cell.id)
        if cell.id in finished:
            record = replace(record, state=CellState.FINISHED)
        elif record.state is CellState.FINISHED:
            record = replace(record, state=CellState.WAITING)  # its results were deleted
        elif record.state is CellState.SUBMITTED and not is_running:
            record = replace(record, state=CellState.INTERRUPTED)
        records[cell.id] = record
    return records
