"""`modnorm run` and `distil`: from spec to report, with a lab inside this process."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from modnorm.cli.console import (
    emit_json,
    interruptible,
    note,
    on_one_line,
    output,
    say,
    stderr,
    tell,
)
from modnorm.cli.options import (
    LabServer,
    Out,
    Seed,
    SpecFile,
    check_model,
    check_prompts,
    check_spec,
    connect,
    opt,
    read_spec,
    seeded,
    settings,
)
from modnorm.errors import CancelledError, EvaluationError, InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from modnorm.analysis.distillation import DistillationDocument
    from modnorm.client.client import Client
    from modnorm.client.run_directory import RunDirectory
    from modnorm.spec import DistillationSpec, ExperimentSpec
    from modnorm.v1 import experiment_pb2 as experiments

Device = Annotated[
    str | None,
    opt("--device DEVICE", "Device that trains, such as cuda:1 [default: a GPU if there is one]."),
]
Submit = Callable[..., "experiments.Experiment"]
"""Submits a spec to a lab, beside experiments in flight."""
SAME_COMMAND = "the same command resumes here"
SUBMIT_AGAIN = "submit it again: finished results are reused"


def run(spec_file: SpecFile, *, out: Out = None, seed: Seed = None) -> None:
    """Run an experiment in this process and write results and a report.

    The same command resumes an interrupted run, and a failed one once its cause is fixed. It
    repeats nothing that is finished.
    """
    from modnorm.client.run_directory import RunDirectory, hold, state_directory

    home = out or Path("runs") / spec_file.stem
    spec = seeded(read_spec(spec_file), seed)
    directory = RunDirectory(home)
    directory.check(spec)
    spec.require_search()
    check_spec(spec, spec_file)
    check_model(spec)
    with interruptible("stopped; the same command resumes here"), hold(home):
        from modnorm.analysis.run import load_run
        from modnorm.analysis.run_files import REPORT
        from modnorm.cli.results import print_results
        from modnorm.spec.reading import located

        if directory.has_results_of(spec) and not state_directory(home).exists():
            note(
                f"{home} has the results of this spec, so nothing is run; another --out runs it "
                "again"
            )
        else:
            if directory.has_results and not directory.has_results_of(spec):
                note(f"{home} has the results of another spec, which this run replaces at its end")
            with lab_here(home) as client:
                with located(spec_file):
                    experiment = submit_here(client, spec)
                _finish_search(client, experiment, spec, directory, title=spec_file.stem)
        finished = load_run(home)
        emit_json(finished.document)
        print_results(finished)
        say(f"report: {home / REPORT}")


@contextmanager
def lab_here(home: Path) -> "Iterator[Client]":
    """Start a lab that works in a directory; all but this command's own output goes to its log."""
    from modnorm.cli.progress import loading

    settings().check_cache()
    with loading("torch and the services"):
        from modnorm.client.embedded import embedded_client, find_embedded
        from modnorm.client.run_directory import state_directory
        from modnorm.process_output import LAB_LOG

        find_embedded()
    with embedded_client(home, settings(), log_output=True) as client:
        tell(f"log: {state_directory(home) / LAB_LOG}")
        yield client


def _finish_search(
    client: "Client",
    experiment: "experiments.Experiment",
    spec: "ExperimentSpec",
    directory: "RunDirectory",
    title: str | None = None,
) -> None:
    from modnorm.cli.results import write_results

    directory.reserve(spec)
    show_remarks(client, experiment.id)
    ended = follow_to_end(client, experiment, title=title, go_on=SAME_COMMAND)
    directory.renew(spec)
    write_results(client, ended, directory)


def follow_to_end(
    client: "Client",
    experiment: "experiments.Experiment",
    *,
    title: str | None = None,
    go_on: str = SUBMIT_AGAIN,
) -> "experiments.Experiment":
    """Show the progress of an experiment until it ends, and return its final state."""
    from modnorm.cli.progress import Screen, catch_up, follow
    from modnorm.client.connection import get_experiment, watch_messages

    def base_reward() -> float | None:
        try:
            base = get_experiment(client, experiment.id).base
        except UnavailableError:  # the event stream waits for the lab; the next event asks again
            return None
        return base.selection_reward if base.HasField("selection_reward") else None

    shown = on_one_line(experiment.spec.name) or title or experiment.id
    sizes = experiment.spec.population.ensemble_sizes
    with Screen(stderr(), shown) as screen:
        events = catch_up(watch_messages(client, experiment.id), experiment)
        follow(events, screen, max(sizes, default=1), base_reward)
    ended = get_experiment(client, experiment.id)
    check_end(ended, go_on)
    return ended


def submit_here(
    client: "Client", spec: "ExperimentSpec", in_flight: Collection[str] = ()
) -> "experiments.Experiment":
    """Submit to a lab on this machine, which reads our paths.

    A finished experiment is found again, an interrupted one resumes. After a failure a new
    experiment reuses the finished results. A running experiment that it replaces is cancelled,
    unless it is in flight.
    """
    from modnorm.client.resumption import check_model_unchanged, resume_or_submit  # loads torch

    experiment = resume_or_submit(client, spec, wanted=in_flight)
    check_model_unchanged(spec, experiment.provenance)
    return experiment


@contextmanager
def lab_for(home: Path, server: str | None, prefix: str) -> "Iterator[tuple[Client, Submit]]":
    """Yield a client of the lab that runs a command's experiments, and what submits them."""
    if server is None:
        with lab_here(home) as client:
            yield client, partial(submit_here, client)
        return
    from modnorm.client.resumption import resume_or_submit_shared

    with connect(server) as client:
        yield client, lambda spec, _=(): resume_or_submit_shared(client, spec, prefix)


def show_remarks(client: "Client", experiment_id: str) -> None:
    """Print the remarks of the first event: the sandbox that is used, rows that occur twice."""
    if output.quiet:  # a token that may only submit must not watch
        return
    from modnorm.client.connection import watch_messages

    beginning = next(watch_messages(client, experiment_id)).message
    if beginning != "created":
        say(beginning)


def check_end(experiment: "experiments.Experiment", go_on: str = SUBMIT_AGAIN) -> None:
    """Raise the error of an experiment that failed or was cancelled."""
    from modnorm.v1 import experiment_pb2 as experiments

    if experiment.state == experiments.EXPERIMENT_STATE_FAILED:
        remedy = experiment.remedy or "fix the cause"
        raise EvaluationError(
            f"the experiment failed: {experiment.error}", remedy=f"{remedy}; then {go_on}"
        )
    if experiment.state == experiments.EXPERIMENT_STATE_CANCELLED:
        raise CancelledError("the experiment was cancelled")


def distil(
    spec_file: SpecFile,
    *,
    out: Out = None,
    seed: Seed = None,
    server: LabServer = None,
    device: Device = None,
) -> None:
    """Train one model on an ensemble's right answers, in rounds.

    Each round searches, lets the experts answer training rows, trains a student on right answers
    by TRL, and evaluates it. The same command resumes an interrupted distillation and repeats no
    finished stage. Students are folders of DIR, which a lab of --server must see.
    """
    from modnorm.client.run_directory import hold

    spec = seeded(read_spec(spec_file), seed)
    home = out or Path("runs") / spec_file.stem
    settings_of(spec)  # a search is refused before any other check
    check_spec(spec, spec_file)
    check_model(spec)
    with interruptible("stopped; the same command resumes here"), hold(home):
        from modnorm.analysis.run_files import REPORT
        from modnorm.cli.results import print_distillation

        document = run_distillation(spec, home, home, server, device=device)
        emit_json(document)
        print_distillation(document)
        say(f"report: {home / REPORT}")


def settings_of(spec: "ExperimentSpec") -> "DistillationSpec":
    """Return the section `distillation` of a spec."""
    if spec.distillation is None:
        raise InvalidInputError(
            "is missing: this spec is a search",
            field="distillation",
            remedy="add the section (docs/distillation.md), or use `modnorm run`",
        )
    return spec.distillation


def run_distillation(
    spec: "ExperimentSpec", directory: Path, home: Path, server: str | None, *, device: str | None
) -> "DistillationDocument":
    """Carry out a distillation, or return the figures of a finished one."""
    from modnorm.analysis.distillation import load_distillation
    from modnorm.cli.progress import counted, loading
    from modnorm.client.run_directory import RunDirectory
    from modnorm.spec_checks import load_splits

    if RunDirectory(directory).has_results_of(spec):
        note(f"{directory} has the results of this spec; another --out runs it again")
        return load_distillation(directory)
    with loading("torch"):
        from modnorm.checkpoint.reference import resolve_checkpoint
        from modnorm.distillation.rounds import Distillation, DistillationMeans
    means = DistillationMeans(
        search=partial(_search, home, server), announce=tell, counted=counted, device=device
    )
    splits = load_splits(spec, roots=None, folders=settings().split_folders)
    check_prompts(spec, splits, resolve_checkpoint(spec.model.name, spec.model.revision))
    return Distillation(spec, settings_of(spec), directory, splits, means).run()


def _search(home: Path, server: str | None, spec: "ExperimentSpec", place: "RunDirectory") -> None:
    place.check(spec)
    with lab_for(home, server, "distil") as (client, submit):
        _finish_search(client, submit(spec), spec, place)
