"""The work of the commands that talk to a running lab."""

import json
from pathlib import Path

import typer

from modnorm.analysis.phase_times import describe_seconds
from modnorm.cli.console import as_dict, emit_json, say, stdout
from modnorm.cli.experiment import check_end, follow_to_end, show_remarks
from modnorm.cli.interruption import interruptible
from modnorm.cli.lab_output import experiments_table, show_experiment
from modnorm.cli.options import connect
from modnorm.cli.results import write_results
from modnorm.client.calls import (
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_experiments,
    list_run_files,
)
from modnorm.client.client import Client
from modnorm.client.resumption import join_or_submit
from modnorm.client.rundir import RunDirectory, hold
from modnorm.client.watch import watch_messages
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto, state_name
from modnorm.wire.run_messages import phase_seconds

_PREFIX = "submit"


def submit_spec(
    spec: ExperimentSpec,
    server: str | None,
    *,
    request_id: str | None,
    again: bool,
    title: str,
    wait: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Submit a spec, or join its running experiment, and print the id.

    With `again` another experiment starts even if one is running. With `wait` it is followed to
    its end; the display shows `title` if the spec has no name.
    """
    with connect(server) as client:
        if again or request_id is not None:
            experiment = client.call(create_experiment(spec, request_id))
        else:
            experiment = _join(client, spec)
        if not quiet:
            show_remarks(client, experiment.id)
        if wait:
            with interruptible(f"experiment {experiment.id} continues in the lab"):
                experiment = follow_to_end(client, experiment, quiet=quiet, title=title)
    if wait or as_json:
        show_experiment(experiment, as_json=as_json)
        return
    typer.echo(experiment.id)
    if experiment.state != experiments.EXPERIMENT_STATE_PENDING and not quiet:
        say(f"it is {state_name(experiment.state)}")


def _join(client: Client, spec: ExperimentSpec) -> experiments.Experiment:
    """Return the running experiment of a spec, with a remark, or a new one."""
    joined = join_or_submit(client, spec, _PREFIX)
    if joined.is_found:
        remark = "an experiment of this spec is already running; --again starts another"
        say(remark)
    return joined.experiment


def watch_experiment(
    experiment_id: str,
    server: str | None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Follow an experiment to its end; with JSON, print one event per line."""
    with connect(server) as client, interruptible("the experiment continues in the lab"):
        if as_json:
            for event in watch_messages(client, experiment_id):
                typer.echo(json.dumps(as_dict(event)))
            check_end(client.call(get_experiment(experiment_id)))
            return
        ended = follow_to_end(client, client.call(get_experiment(experiment_id)), quiet=quiet)
    show_experiment(ended, as_json=False)


def show_stored(
    experiment_id: str, server: str | None, out: Path | None, *, as_json: bool
) -> None:
    """Show an experiment; write its files if a directory is named."""
    with connect(server) as client:
        experiment = client.call(get_experiment(experiment_id))
        report = _write(client, experiment, RunDirectory(out)) if out else None
        seconds = None
        if experiment.state == experiments.EXPERIMENT_STATE_SUCCEEDED and not as_json:
            phases = phase_seconds(watch_messages(client, experiment.id))
            seconds = describe_seconds({"phases": phases})
    show_experiment(experiment, as_json=as_json)
    if seconds:
        stdout().print(seconds, soft_wrap=True)
    if report:
        say(f"report: {report}")


def list_all(server: str | None, *, as_json: bool) -> None:
    """Print the experiments of a lab, newest first."""
    with connect(server) as client:
        found = list(client.pages(list_experiments))
    if as_json:
        emit_json([as_dict(experiment) for experiment in found])
        return
    stdout().print(experiments_table(found))


def stop_experiment(experiment_id: str, server: str | None, *, as_json: bool) -> None:
    """Ask an experiment to stop, and print its state."""
    with connect(server) as client:
        experiment = client.call(cancel_experiment(experiment_id))
    show_experiment(experiment, as_json=as_json, brief=True)


def _write(client: Client, experiment: experiments.Experiment, directory: RunDirectory) -> Path:
    spec = spec_from_proto(experiment.spec)
    client.call(list_run_files(experiment.id))  # refuses one without results
    with hold(directory.path):
        directory.check(spec)
        directory.claim(spec)
        return write_results(client, experiment, directory)
