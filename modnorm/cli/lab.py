"""Commands that talk to a running lab."""

import json
from pathlib import Path
from typing import Annotated

import typer

from modnorm.cli.console import (
    as_dict,
    emit_json,
    on_one_line,
    percent,
    stderr,
    stdout,
    table,
)
from modnorm.cli.experiment import (
    check_end,
    follow_to_end,
    interruptible,
    show_remarks,
)
from modnorm.cli.options import (
    ExperimentId,
    Json,
    Quiet,
    Server,
    SpecFile,
    connect,
    read_spec,
)
from modnorm.cli.progress import rewards
from modnorm.cli.results import write_results
from modnorm.cli.seed import Seed, seeded
from modnorm.client.client import ModnormClient
from modnorm.client.finished import check_succeeded, failure_text
from modnorm.client.rundir import RunDirectory, hold
from modnorm.errors import InvalidInputError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, state_name

_PREFIX = "submit"


def submit(  # noqa: PLR0913 - each argument is an option of the command
    spec_file: SpecFile,
    *,
    server: Server = None,
    request_id: Annotated[
        str | None, typer.Option(help="The same id is the same experiment, at work or ended.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Do it beside one of the same spec that is at work.")
    ] = False,
    seed: Seed = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its end.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Submit an experiment to a lab and print its id, nothing else without --wait.

    Where an experiment of the same spec is at work in the lab, that one is taken, unless --again
    or --request-id asks for another.
    """
    if again and request_id is not None:
        raise InvalidInputError(
            "a request id names one experiment, and --again asks for a fresh one",
            field="again",
            remedy="leave one of the two out",
        )
    spec = seeded(read_spec(spec_file), seed)
    with connect(server) as client:
        if again or request_id is not None:
            experiment = client.submit(spec, request_id)
        else:
            experiment = _join(client, spec)
        if not quiet:
            show_remarks(client, experiment.id)
        if wait:
            with interruptible(f"experiment {experiment.id} goes on in the lab"):
                experiment = follow_to_end(client, experiment, quiet=quiet, title=spec_file.stem)
    if wait or as_json:
        _show(experiment, as_json=as_json)
        return
    typer.echo(experiment.id)
    if experiment.state != experiments.EXPERIMENT_STATE_PENDING and not quiet:
        stderr().print(f"it is {state_name(experiment.state)}")


def _join(client: ModnormClient, spec: ExperimentSpec) -> experiments.Experiment:
    """Return the experiment of a spec that is at work, with a remark, or a new one."""
    from modnorm.client.resumption import join_live

    joined = join_live(client, spec, _PREFIX)
    if joined.is_found:
        remark = "an experiment of this spec is at work, and is taken; --again makes another"
        stderr().print(remark, soft_wrap=True)
    return joined.experiment


def watch(
    experiment_id: ExperimentId,
    *,
    server: Server = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Follow an experiment to its end. With --json: one event a line."""
    with connect(server) as client, interruptible("the experiment goes on in the lab"):
        if as_json:
            for event in client.watch(experiment_id):
                typer.echo(json.dumps(as_dict(event)))
            check_end(client.get(experiment_id))
            return
        ended = follow_to_end(client, client.get(experiment_id), quiet=quiet)
    _show(ended, as_json=False)


def show(
    experiment_id: ExperimentId,
    *,
    server: Server = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write results and report here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show an experiment; with --out, write the files that `run` writes."""
    with connect(server) as client:
        experiment = client.get(experiment_id)
        report = _write(client, experiment, RunDirectory(out)) if out else None
    _show(experiment, as_json=as_json)
    if report:
        stderr().print(f"report: {report}", soft_wrap=True)


def list_experiments(*, server: Server = None, as_json: Json = False) -> None:
    """List the experiments of a lab, newest first."""
    with connect(server) as client:
        found = list(client.list())
    if as_json:
        emit_json([as_dict(experiment) for experiment in found])
        return
    headings = ("id", "name", "state", "jobs", "best", "top-K", "created")
    stdout().print(table(headings, (_row(experiment) for experiment in found)))


def cancel(experiment_id: ExperimentId, *, server: Server = None, as_json: Json = False) -> None:
    """Ask an experiment to stop."""
    with connect(server) as client:
        experiment = client.cancel(experiment_id)
    _show(experiment, as_json=as_json, brief=True)


def _write(
    client: ModnormClient, experiment: experiments.Experiment, directory: RunDirectory
) -> Path:
    spec = spec_from_proto(experiment.spec)
    check_succeeded(experiment)
    with hold(directory.path):
        directory.check(spec)
        directory.claim(spec)
        return write_results(client, experiment, directory)


def _row(experiment: experiments.Experiment) -> tuple[str, ...]:
    progress = experiment.progress
    return (
        experiment.id,
        on_one_line(experiment.spec.name) or "-",
        state_name(experiment.state),
        f"{progress.jobs_done}/{progress.jobs_total}",
        f"{progress.best_reward:.4f}" if progress.HasField("best_reward") else "-",
        f"{progress.threshold_reward:.4f}" if progress.HasField("threshold_reward") else "-",
        experiment.create_time.ToDatetime().isoformat(sep=" ", timespec="seconds"),
    )


def _show(experiment: experiments.Experiment, *, as_json: bool, brief: bool = False) -> None:
    if as_json:
        emit_json(as_dict(experiment))
        return
    console = stdout()
    console.print(f"{experiment.id}  {state_name(experiment.state)}", soft_wrap=True)
    if experiment.error:
        console.print(failure_text(experiment), soft_wrap=True)
    if stopped := experiment.progress.candidates_stopped:
        total = experiment.spec.population.size
        console.print(f"{stopped} of {total} candidates were stopped early", soft_wrap=True)
    progress = experiment.progress
    if progress.updates_total:
        made = f"{progress.updates_done} of {progress.updates_total} updates are made"
        console.print(made, soft_wrap=True)
    if brief:
        return
    if experiment.state != experiments.EXPERIMENT_STATE_SUCCEEDED:
        console.print(", ".join(_standing(experiment)), soft_wrap=True)
    if experiment.states:
        console.print(table(("state", "development", "held-out"), _states(experiment)))
    elif rows := _ensembles(experiment):
        console.print(table(("ensemble", "held-out", "right"), rows))


def _standing(experiment: experiments.Experiment) -> list[str]:
    """Return how far an experiment is, or was when it ended early."""
    progress, base = experiment.progress, experiment.base
    largest = max(experiment.spec.population.ensemble_sizes, default=1)
    known = base.selection_reward if base.HasField("selection_reward") else None
    parts = [
        f"jobs {progress.jobs_done}/{progress.jobs_total}",
        f"failed {progress.jobs_failed}",
        f"running {progress.jobs_running}",
    ]
    if experiment.state == experiments.EXPERIMENT_STATE_CALIBRATING:
        parts = [f"prompts calibrated {progress.examples_done}/{progress.examples_total}"]
    waiting = [f"waiting: {experiment.waits_for}"] if experiment.waits_for else []
    return [*parts, *rewards(progress, known, largest), *waiting]


def _states(experiment: experiments.Experiment) -> list[tuple[str, ...]]:
    """Return the states of an iterative run; the one that it reports is marked."""
    return [
        (
            f"after {state.updates} updates" + (" *" if state.reported else ""),
            percent(state.development_metric if state.HasField("development_metric") else None),
            percent(state.heldout_metric if state.HasField("heldout_metric") else None),
        )
        for state in experiment.states
    ]


def _ensembles(experiment: experiments.Experiment) -> list[tuple[str, ...]]:
    base = experiment.base
    rows: list[tuple[str, ...]] = []
    if base.HasField("heldout_metric"):
        rows.append(("base", percent(base.heldout_metric), ""))
    rows += [
        (
            f"N={found.population} K={found.ensemble_size}",
            percent(found.metric),
            f"{found.correct}/{found.rows}",
        )
        for found in experiment.ensembles
    ]
    return rows
