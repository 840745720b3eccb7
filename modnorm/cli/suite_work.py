"""Runs the cells of `modnorm suite run` on a lab, its own or a shared one."""

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from modnorm.cli.console import say
from modnorm.cli.distil import run_distillation
from modnorm.cli.experiment import lab_here
from modnorm.cli.options import connect, settings
from modnorm.cli.results import write_results
from modnorm.client.client import Client
from modnorm.client.inputs import check_inputs
from modnorm.client.resumption import resume_or_submit, resume_or_submit_shared
from modnorm.errors import ModnormError
from modnorm.spec import ExperimentSpec
from modnorm.suites import Cell, LoadedSuite
from modnorm.suites.outcomes import load_outcomes
from modnorm.suites.running.journal import CellRecord, CellState, Journal
from modnorm.suites.running.runner import SuiteRunner
from modnorm.v1 import experiment_pb2 as experiments

_IN_FLIGHT_IN_A_LAB = 4
_PREFIX = "suite"
"""First part of the request ids of all suites, so that suites share equal experiments."""
_PATIENCE_SECONDS = 120.0
"""A lab may restart during a suite."""


def run_suite(
    loaded: LoadedSuite,
    cells: Sequence[Cell],
    directory: Path,
    *,
    server: str | None,
    in_flight: int | None,
    quiet: bool,
) -> bool:
    """Run cells; return whether all are finished.

    The caller has locked the directory of the suite. Without a server the cells run in this
    process. Distillations run last, one after another.

    Raises:
        ConflictError: the directory belongs to another suite, or to other settings.
        UnavailableError: the lab does not answer.
    """
    journal = Journal(directory, loaded.suite.name)
    journal.check(loaded.settings)
    journal.begin(loaded.settings)
    searches = [cell for cell in cells if cell.spec.distillation is None]
    listen = _ignore if quiet else _ProgressLines()
    embedded, finished = server is None, True
    profiles = _calibrate_origins(loaded, searches, directory) if embedded else {}
    if searches:
        with lab_here(directory, quiet=quiet) if embedded else connect(server) as client:
            runner = SuiteRunner(
                client=client,
                cells=searches,
                origins=loaded.cells,
                profiles=profiles,
                directory=directory,
                journal=journal,
                submit=_submit_here if embedded else _submit_to_lab,
                finish=partial(write_results, client),
                in_flight=in_flight or (1 if embedded else _IN_FLIGHT_IN_A_LAB),
                patience=0.0 if embedded else _PATIENCE_SECONDS,
                listen=listen,
            )
            finished = runner.run()
    for cell in cells:
        if cell.spec.distillation is not None:
            listen(cell, journal.note(cell.id, state=CellState.SUBMITTED, error=""))
            try:
                place = directory / cell.id
                run_distillation(cell.spec, place, directory, server, device=None, quiet=quiet)
                record = journal.note(cell.id, state=CellState.FINISHED)
            except ModnormError as error:
                record = journal.note(cell.id, state=CellState.FAILED, error=str(error))
                finished = False
            listen(cell, record)
    return finished


def _calibrate_origins(
    loaded: LoadedSuite, cells: Sequence[Cell], directory: Path
) -> dict[str, str]:
    """Calibrate the profiles that cells need from cells that neither run now nor are finished."""
    finished = load_outcomes(loaded.cells, directory).finished
    running = {cell.id for cell in cells} - finished.keys()
    wanted = {cell.profile_of for cell in cells if cell.id in running}
    origins = [cell for cell in loaded.cells if cell.id in wanted - running - finished.keys()]
    if not origins:
        return {}
    from modnorm.client.matching import calibrate_experiment  # loads torch

    profiles = {}
    for origin in origins:
        say(f"{origin.id}: calibrating its profile, which other cells use")
        profiles[origin.id] = calibrate_experiment(origin.spec, settings())
    return profiles


def _submit_here(
    client: Client, spec: ExperimentSpec, in_flight: Collection[str]
) -> experiments.Experiment:
    """Submit to a lab on this machine, which reads our paths."""
    experiment = resume_or_submit(client, spec, wanted=in_flight)
    check_inputs(spec, experiment.provenance, folders=settings().split_folders)
    return experiment


def _submit_to_lab(
    client: Client, spec: ExperimentSpec, _in_flight: Collection[str]
) -> experiments.Experiment:
    """Submit to a shared lab, where this command cancels no experiment."""
    return resume_or_submit_shared(client, spec, _PREFIX)


class _ProgressLines:
    """Prints a line when a cell changes its state, its phase or the service that it waits for."""

    def __init__(self) -> None:
        self._printed: dict[str, tuple[str, str, str]] = {}

    def __call__(self, cell: Cell, record: CellRecord) -> None:
        now = (str(record.state), record.phase, record.waits_for)
        if self._printed.get(cell.id) == now:
            return
        self._printed[cell.id] = now
        text = record.error or (record.phase if record.state == "submitted" else "")
        waiting = f", waiting: {record.waits_for}" if record.waits_for else ""
        line = f"{cell.id}: {record.state} {text}".rstrip() + waiting
        say(line)


def _ignore(_cell: Cell, _record: CellRecord) -> None:
    return None
