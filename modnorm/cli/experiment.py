"""Submit one experiment and follow it to its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from modnorm.cli.console import on_one_line, say, stderr
from modnorm.cli.options import settings
from modnorm.cli.progress import catch_up, display, follow
from modnorm.client.calls import get_experiment
from modnorm.client.client import Client
from modnorm.client.embedded import embedded_client
from modnorm.client.resumption import resume_or_submit
from modnorm.client.rundir import state_directory
from modnorm.client.watch import watch_messages
from modnorm.errors import CancelledError, EvaluationError, UnavailableError
from modnorm.process_output import LAB_LOG
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

SAME_COMMAND = "the same command resumes here"
SUBMIT_AGAIN = "submit it again: finished results are reused"
_NO_REMARK = "created"


@contextmanager
def lab_here(home: Path, *, quiet: bool) -> Iterator[Client]:
    """Start a lab that works in a directory; all but this command's own output goes to its log."""
    with embedded_client(home, settings(), log_output=True) as client:
        if not quiet:
            say(f"log: {state_directory(home) / LAB_LOG}")
        yield client


def follow_to_end(
    client: Client,
    experiment: experiments.Experiment,
    *,
    quiet: bool,
    title: str | None = None,
    go_on: str = SUBMIT_AGAIN,
) -> experiments.Experiment:
    """Show the progress of an experiment until it ends, and return its final state.

    The display shows `title` if the spec has no name, else the id. `go_on` states how to continue
    a failed experiment once its cause is fixed.

    Raises:
        EvaluationError: it failed; the message is its reason.
        CancelledError: it was cancelled.
    """
    shown = on_one_line(experiment.spec.name) or title or experiment.id
    sizes = experiment.spec.population.ensemble_sizes
    with display(stderr(), shown, max(sizes, default=1), quiet=quiet) as screen:
        events = catch_up(watch_messages(client, experiment.id), experiment)
        follow(events, screen, _base_reward(client, experiment.id))
    ended = client.call(get_experiment(experiment.id))
    check_end(ended, go_on)
    return ended


def run_experiment(
    client: Client,
    spec: ExperimentSpec,
    *,
    quiet: bool,
    title: str | None = None,
    on_accepted: Callable[[], None] = lambda: None,
) -> experiments.Experiment:
    """Submit a spec to a lab on this machine, and follow it to its end.

    A finished experiment is found again, an interrupted one resumes. After a failure a new
    experiment reuses the finished results.

    `on_accepted` is called once the lab has accepted the spec. The display shows `title` if the
    spec has no name, else the id.

    Raises:
        ConflictError: a path of the spec now holds other data, another model or another profile
            than when the experiment started.
    """
    from modnorm.client.inputs import check_inputs  # loads torch

    experiment = resume_or_submit(client, spec)
    check_inputs(spec, experiment.provenance, folders=settings().split_folders)
    on_accepted()
    if not quiet:
        show_remarks(client, experiment.id)
    return follow_to_end(client, experiment, quiet=quiet, title=title, go_on=SAME_COMMAND)


def show_remarks(client: Client, experiment_id: str) -> None:
    """Print the remarks of the first event: the sandbox that is used, rows that occur twice."""
    beginning = next(watch_messages(client, experiment_id)).message
    if beginning != _NO_REMARK:
        say(beginning)


def _base_reward(client: Client, experiment_id: str) -> Callable[[], float | None]:
    def base_reward() -> float | None:
        try:
            base = client.call(get_experiment(experiment_id)).base
        except UnavailableError:  # the event stream waits for the lab; the next event asks again
            return None
        return base.selection_reward if base.HasField("selection_reward") else None

    return base_reward


def check_end(experiment: experiments.Experiment, go_on: str = SUBMIT_AGAIN) -> None:
    """Raise the error of an experiment that failed or was cancelled.

    `go_on` states how to continue a failed experiment once its cause is fixed.

    Raises:
        EvaluationError: the experiment failed; the message is its reason.
        CancelledError: it was cancelled.
    """
    if experiment.state == experiments.EXPERIMENT_STATE_FAILED:
        remedy = experiment.remedy or "fix the cause"
        raise EvaluationError(
            f"the experiment failed: {experiment.error}", remedy=f"{remedy}; then {go_on}"
        )
    if experiment.state == experiments.EXPERIMENT_STATE_CANCELLED:
        raise CancelledError("the experiment was cancelled")
