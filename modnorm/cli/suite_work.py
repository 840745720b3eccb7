"""What `modnorm suite run` does: a lab, and a runner on it."""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from modnorm.cli.console import stderr
from modnorm.cli.options import connect, settings
from modnorm.cli.results import write_results
from modnorm.client.client import ModnormClient
from modnorm.client.embedded import embedded_client
from modnorm.client.inputs import check_inputs
from modnorm.client.resumption import take_up, take_up_shared
from modnorm.client.rundir import RunDirectory
from modnorm.spec import ExperimentSpec
from modnorm.suites import Cell, LoadedSuite
from modnorm.suites.running.journal import CellRecord, Journal
from modnorm.suites.running.runner import Submit, SuiteRunner
from modnorm.v1 import experiment_pb2 as experiments

_IN_FLIGHT_IN_A_LAB = 4
_PREFIX = "suite"
"""Request ids of all suites begin with it, so that suites share the experiments they share."""
_PATIENCE_SECONDS = 120.0
"""A lab may be started anew in the middle of a suite."""


def carry_out(  # noqa: PLR0913 - what a run depends on
    loaded: LoadedSuite,
    cells: Sequence[Cell],
    directory: Path,
    *,
    server: str | None,
    in_flight: int | None,
    quiet: bool,
) -> bool:
    """Run cells to their end; return whether all of them are finished.

    Args:
        loaded: The suite.
        cells: The cells to run.
        directory: The directory of the suite, held by the caller.
        server: `HOST:PORT` of a lab; None for one inside this process.
        in_flight: Experiments at a time; None for the default.
        quiet: Tell nothing.

    Raises:
        ConflictError: the directory belongs to another suite, or to other settings.
        UnavailableError: the lab is out of reach, or has broken down.
    """
    journal = Journal(directory, loaded.suite.name)
    journal.check(loaded.settings)
    journal.begin(loaded.settings)
    with ExitStack() as stack:
        if server is None:
            client = stack.enter_context(embedded_client(directory, settings()))
        else:
            client = stack.enter_context(connect(server))
        runner = _runner(client, loaded, cells, directory, journal, server is None, quiet=quiet)
        runner.in_flight = in_flight or (1 if server is None else _IN_FLIGHT_IN_A_LAB)
        return runner.run()


def _runner(  # noqa: PLR0913, PLR0917 - wiring
    client: ModnormClient,
    loaded: LoadedSuite,
    cells: Sequence[Cell],
    directory: Path,
    journal: Journal,
    embedded: bool,  # noqa: FBT001 - wiring
    *,
    quiet: bool,
) -> SuiteRunner:
    submit: Submit = _take_up_here if embedded else _take_up_there
    return SuiteRunner(
        client=client,
        cells=cells,
        origins=loaded.cells,
        directory=directory,
        journal=journal,
        submit=submit,
        finish=partial(_finish, client),
        patience=0.0 if embedded else _PATIENCE_SECONDS,
        listen=_pass_over if quiet else _Telling(),
    )


def _take_up_here(
    client: ModnormClient, spec: ExperimentSpec, in_flight: Collection[str]
) -> experiments.Experiment:
    """Submit to a lab on this machine, whose paths are ours."""
    experiment = take_up(client, spec, wanted=in_flight)
    check_inputs(spec, experiment.provenance, folders=settings().split_folders)
    return experiment


def _take_up_there(
    client: ModnormClient, spec: ExperimentSpec, _in_flight: Collection[str]
) -> experiments.Experiment:
    """Submit to a lab of others, too, where nothing is cancelled."""
    return take_up_shared(client, spec, _PREFIX)


def _finish(
    client: ModnormClient, experiment: experiments.Experiment, place: RunDirectory
) -> None:
    write_results(client, experiment, place)


class _Telling:
    """Prints a line where a cell enters a state or a phase, or begins or ends to wait."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str, str]] = {}

    def __call__(self, cell: Cell, record: CellRecord) -> None:
        now = (str(record.state), record.phase, record.waits_for)
        if self._told.get(cell.id) == now:
            return
        self._told[cell.id] = now
        text = record.error or (record.phase if record.state == "submitted" else "")
        waiting = f", waiting: {record.waits_for}" if record.waits_for else ""
        line = f"{cell.id}: {record.state} {text}".rstrip() + waiting
        stderr().print(line, soft_wrap=True)


def _pass_over(_cell: Cell, _record: CellRecord) -> None:
    return None
