"""The work of `modnorm run`: start a lab, and run checked specs one after another."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from modnorm.cli.console import emit_json, note, say
from modnorm.cli.experiment import lab_here, run_experiment
from modnorm.cli.results import print_results, read_results, write_results
from modnorm.cli.run_plan import PlannedRun, report_failure
from modnorm.client.client import Client
from modnorm.client.rundir import state_directory
from modnorm.errors import EvaluationError, ModnormError, UnavailableError


@dataclass(frozen=True)
class RunOptions:
    """Options that all runs share."""

    quiet: bool
    """Show no progress."""
    as_json: bool
    """Write the documents of all results to stdout."""


def run_all(
    runs: Sequence[PlannedRun],
    home: Path,
    *,
    refused: Collection[PlannedRun],
    options: RunOptions,
) -> None:
    """Carry out runs in a lab inside this process, and print their results.

    The caller has locked `home`. Refused runs are skipped and count as failures. Results that are
    there without the lab that computed them, as in a copy of a run, are not computed again.

    Raises:
        EvaluationError: some of several failed.
        ModnormError: the only one failed.
    """
    wanted = [planned for planned in runs if planned not in refused]
    copied = [] if state_directory(home).exists() else _with_results(wanted, options)
    failed_now = []
    if left := [planned for planned in wanted if planned not in copied]:
        with lab_here(home, quiet=options.quiet) as client:
            failed_now = _run_each(client, left, len(runs), options)
    failed = [*refused, *failed_now]
    if options.as_json:
        documents = [read_results(each.directory) for each in runs if each not in failed]
        emit_json(documents[0] if len(runs) == 1 else documents)
    if failed:
        names = ", ".join(str(each.directory.path.name) for each in runs if each in failed)
        raise EvaluationError(
            f"{len(failed)} of {len(runs)} experiments failed: {names}",
            remedy="fix the causes above; the same command repeats nothing that is finished",
        )


def _with_results(wanted: Sequence[PlannedRun], options: RunOptions) -> list[PlannedRun]:
    """Print and return the runs whose results are there."""
    found = [planned for planned in wanted if planned.directory.has_results_of(planned.spec)]
    for planned in found:
        note(
            f"{planned.directory.path} has the results of this spec, so nothing is run; "
            "another --out runs it again"
        )
        if not options.as_json:
            _print_results(planned)
    return found


def _run_each(
    client: Client, wanted: Sequence[PlannedRun], planned_runs: int, options: RunOptions
) -> list[PlannedRun]:
    """Run one after another; return the failed ones. A single run raises its error instead."""
    if planned_runs == 1:
        _carry_out(client, wanted[0], options)
        return []
    failed = []
    for planned in wanted:
        try:
            _carry_out(client, planned, options)
        except ModnormError as error:
            if isinstance(error, UnavailableError):
                next(iter(client.list()), None)  # raises where the lab itself is down
            failed.append(planned)
            report_failure(planned, error)
    return failed


def _carry_out(client: Client, planned: PlannedRun, options: RunOptions) -> None:
    experiment = run_experiment(
        client,
        planned.spec,
        quiet=options.quiet,
        title=planned.title,
        on_accepted=lambda: planned.directory.claim(planned.spec),
    )
    report = write_results(client, experiment, planned.directory)
    if not options.as_json:
        _print_results(planned)
    say(f"report: {report}")


def _print_results(planned: PlannedRun) -> None:
    print_results(planned.directory.path, read_results(planned.directory))
