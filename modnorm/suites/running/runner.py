"""Carries a suite out: cells are submitted in order, several at a time, and followed to the end.

A cell is found again by its spec: the request id is made from it, so that the same cell is the
same experiment, in this suite or in another. What failed is tried again by the next run, and takes
over what was finished.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from modnorm.client.client import ModnormClient
from modnorm.client.finished import failure_text
from modnorm.client.rundir import RunDirectory
from modnorm.client.watch import TERMINAL_STATES
from modnorm.errors import ConflictError, ModnormError, UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.suites.cells import Cell
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.running.availability import Reach
from modnorm.suites.running.journal import CellRecord, CellState, Journal
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two looks at what is in flight."""

Submit = Callable[[ModnormClient, ExperimentSpec, Collection[str]], experiments.Experiment]
"""Submits a cell's spec, or finds its experiment; the ids are those of the cells in flight."""
Listener = Callable[[Cell, CellRecord], None]
"""Is told what becomes of cells."""
Finish = Callable[[experiments.Experiment, RunDirectory], None]
"""Writes the files of a finished cell."""


@dataclass
class SuiteRunner:
    """The cells of a suite on one lab.

    `run` may be called once.
    """

    client: ModnormClient
    cells: Sequence[Cell]
    directory: Path
    """Held by the caller; each cell has a directory of its own in it."""
    journal: Journal
    submit: Submit
    finish: Finish
    origins: Sequence[Cell] = ()
    """Cells whose profiles may be used though they are not to run."""
    in_flight: int = 1
    """Experiments at a time."""
    patience: float = 0.0
    """Seconds that a lab may be out of reach once it was there."""
    listen: Listener = lambda _cell, _record: None
    _waiting: list[Cell] = field(default_factory=list)
    _running: dict[str, str] = field(default_factory=dict)
    """Experiment by cell."""
    _profiles: dict[str, str] = field(default_factory=dict)
    """Profile by the cell that calibrated it; empty where that failed."""
    _reach: Reach = field(init=False)

    def __post_init__(self) -> None:
        """Begin without knowing whether the lab is there."""
        self._reach = Reach(self.client, self.patience)

    def run(self) -> bool:
        """Run all that is not finished; return whether every cell is, in the end.

        Raises:
            ConflictError: a directory holds a run of other settings.
            UnavailableError: the lab is out of reach, or has broken down.
        """
        self._sort()
        pause = FIRST_PAUSE
        while self._waiting or self._running:
            moved = self._start_some()
            moved = self._look() or moved
            if not self._running and not moved and not self._reach.is_lost:
                self._give_up()
                break
            pause = FIRST_PAUSE if moved else min(pause * 1.5, LONGEST_PAUSE)
            if self._running or self._reach.is_lost:
                time.sleep(pause)
        return all(self.journal.record(cell.id).state is CellState.FINISHED for cell in self.cells)

    def _sort(self) -> None:
        """Tell what is finished from what waits, before anything is submitted."""
        for origin in load_outcomes(self.origins, self.directory).finished.values():
            self._profiles[origin.cell.id] = origin.profile
        outcomes = load_outcomes(self.cells, self.directory)
        for cell in self.cells:
            if cell.id in outcomes.strangers:
                raise ConflictError(
                    f"{self.directory / cell.id} holds a run of other settings",
                    field=f"{cell.id}: {outcomes.strangers[cell.id]}",
                    remedy="name another directory with --out",
                )
            outcome = outcomes.of(cell)
            if outcome is None:
                self._waiting.append(cell)
                continue
            self._profiles[cell.id] = outcome.profile
            if self.journal.record(cell.id).state is not CellState.FINISHED:
                self._note(cell, state=CellState.FINISHED, error="")

    def _start_some(self) -> bool:
        moved = False
        for cell in list(self._waiting):
            if len(self._running) >= self.in_flight:
                break
            if cell.profile_of is not None and cell.profile_of not in self._profiles:
                continue
            try:
                done = self._start(cell)
            except UnavailableError as error:
                self._reach.bear(error)
                break
            moved = True
            if not done:
                break
            self._waiting.remove(cell)
        return moved

    def _start(self, cell: Cell) -> bool:
        """Submit one cell; what is wrong with it alone does not stop the others.

        Returns:
            Whether that is done; else it is tried once more.

        Raises:
            UnavailableError: the lab is out of reach.
        """
        try:
            spec = self._complete(cell)
            place = RunDirectory(self.directory / cell.id)
            place.check(spec)
            experiment = self.submit(self.client, spec, self._running.values())
            place.claim(spec)
        except UnavailableError as error:
            self._reach.check()
            if self._reach.may_take(cell.id):
                return False
            self._fail(cell, error)
        except ModnormError as error:
            self._fail(cell, error)
        else:
            self._reach.found()
            self._running[cell.id] = experiment.id
            self._note(cell, state=CellState.SUBMITTED, experiment=experiment.id, error="")
        return True

    def _complete(self, cell: Cell) -> ExperimentSpec:
        if cell.profile_of is None:
            return cell.spec
        digest = self._profiles[cell.profile_of]
        if not digest:
            raise ConflictError(
                f"{cell.profile_of}, whose profile it uses, has none",
                field="method.profile",
                remedy="mend that cell first",
            )
        return cell.with_profile(digest)

    def _look(self) -> bool:
        """Ask for the experiments in flight; return whether one has ended."""
        ended = False
        for cell in self.cells:
            if cell.id not in self._running:
                continue
            try:
                ended = self._follow(cell) or ended
            except UnavailableError as error:
                self._reach.bear(error)
                break
        return ended

    def _follow(self, cell: Cell) -> bool:
        """Ask for the experiment of a cell; return whether nothing more is to be done for it.

        Raises:
            UnavailableError: the lab is out of reach.
        """
        experiment = self.client.get(self._running[cell.id])
        self._reach.found()
        self._learn_profile(cell, experiment)
        if experiment.state not in TERMINAL_STATES:
            self._progress(cell, experiment)
            return False
        if not self._end(cell, experiment):
            return False
        del self._running[cell.id]
        return True

    def _learn_profile(self, cell: Cell, experiment: experiments.Experiment) -> None:
        if experiment.provenance.profile_digest:
            self._profiles[cell.id] = experiment.provenance.profile_digest

    def _progress(self, cell: Cell, experiment: experiments.Experiment) -> None:
        progress = experiment.progress
        self._note(
            cell,
            phase=state_name(experiment.state),
            done=progress.jobs_done,
            total=progress.jobs_total,
            waits_for=experiment.waits_for,
        )

    def _end(self, cell: Cell, experiment: experiments.Experiment) -> bool:
        """Write what a cell ended with; return whether that is done."""
        if experiment.state != experiments.EXPERIMENT_STATE_SUCCEEDED:
            reason = failure_text(experiment) or "it was cancelled"
            self._fail(cell, ModnormError(reason))
            return True
        try:
            self.finish(experiment, RunDirectory(self.directory / cell.id))
        except UnavailableError as error:
            self._reach.check()
            if self._reach.may_give(cell.id):
                return False
            self._fail(cell, error)
        except ModnormError as error:
            self._fail(cell, error)
        else:
            self._profiles.setdefault(cell.id, "")
            phase = state_name(experiment.state)
            self._note(cell, state=CellState.FINISHED, phase=phase, waits_for="", error="")
        return True

    def _fail(self, cell: Cell, error: ModnormError) -> None:
        self._profiles.setdefault(cell.id, "")
        self._note(cell, state=CellState.FAILED, waits_for="", error=str(error))

    def _give_up(self) -> None:
        """Fail what waits for a profile that no cell of this run makes."""
        for cell in self._waiting:
            reason = f"{cell.profile_of}, whose profile it uses, is not among the cells"
            self._fail(cell, ModnormError(reason, remedy="run that cell too"))
        self._waiting.clear()

    def _note(self, cell: Cell, **changes: object) -> None:
        before = self.journal.record(cell.id)
        after = self.journal.note(cell.id, **changes)
        if after != before:
            self.listen(cell, after)
