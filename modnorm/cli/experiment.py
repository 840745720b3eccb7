"""One experiment from submission to its end, as seen from the command line."""

from collections.abc import Callable

from modnorm.cli.console import on_one_line, stderr
from modnorm.cli.options import settings
from modnorm.cli.progress import catch_up, display, follow
from modnorm.client import ModnormClient
from modnorm.client.resumption import take_up
from modnorm.errors import CancelledError, EvaluationError, UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

SAME_COMMAND = "the same command goes on from here"
SUBMIT_AGAIN = "submit it again: what is finished is taken over"
_NO_REMARKS = "created"


def follow_to_end(
    client: ModnormClient,
    experiment: experiments.Experiment,
    *,
    quiet: bool,
    title: str | None = None,
    go_on: str = SUBMIT_AGAIN,
) -> experiments.Experiment:
    """Show an experiment's progress until it ends, and return it as it ended.

    Args:
        client: Connection to its lab.
        experiment: The experiment.
        quiet: Show no progress.
        title: What to call it where its spec has no name; its id if absent.
        go_on: How to continue a failed experiment once its cause is fixed.

    Raises:
        EvaluationError: it failed; the message is its reason.
        CancelledError: it was cancelled.
    """
    shown = on_one_line(experiment.spec.name) or title or experiment.id
    sizes = experiment.spec.population.ensemble_sizes
    with display(stderr(), shown, max(sizes, default=1), quiet=quiet) as screen:
        events = catch_up(client.watch(experiment.id), experiment)
        follow(events, screen, _base_reward(client, experiment.id))
    ended = client.get(experiment.id)
    check_end(ended, go_on)
    return ended


def carry_out(
    client: ModnormClient,
    spec: ExperimentSpec,
    *,
    quiet: bool,
    title: str | None = None,
    on_accepted: Callable[[], None] = lambda: None,
) -> experiments.Experiment:
    """Submit a spec to a lab on this machine, and follow it to its end.

    What was finished is found, what was broken off goes on; after a bad end another experiment
    takes over what was finished before it.

    Args:
        client: Connection to a lab.
        spec: What to run.
        quiet: Show no progress.
        title: What to call it where the spec has no name; its id if absent.
        on_accepted: Called once the lab has accepted the spec.

    Raises:
        ConflictError: the experiment is of other data, another model or another profile than
            the spec's paths hold now.
    """
    from modnorm.client.inputs import check_inputs  # loads torch

    experiment = take_up(client, spec)
    check_inputs(spec, experiment.provenance, folders=settings().split_folders)
    on_accepted()
    if not quiet:
        show_remarks(client, experiment.id)
    return follow_to_end(client, experiment, quiet=quiet, title=title, go_on=SAME_COMMAND)


def show_remarks(client: ModnormClient, experiment_id: str) -> None:
    """Print what the first event remarks: what programs run behind, rows that occur twice."""
    beginning = next(client.watch(experiment_id)).message
    if beginning != _NO_REMARKS:
        stderr().print(beginning, soft_wrap=True)


def _base_reward(client: ModnormClient, experiment_id: str) -> Callable[[], float | None]:
    def ask() -> float | None:
        try:
            base = client.get(experiment_id).base
        except UnavailableError:  # whoever follows the events waits for the lab; ask again then
            return None
        return base.selection_reward if base.HasField("selection_reward") else None

    return ask


def check_end(experiment: experiments.Experiment, go_on: str = SUBMIT_AGAIN) -> None:
    """Raise the error of an experiment that failed or was cancelled.

    Args:
        experiment: An experiment that ended.
        go_on: How to continue a failed experiment once its cause is fixed.

    Raises:
        EvaluationError: the experiment failed; the message is its reason.
        CancelledError: it was cancelled.
    """
    if experiment.state == experiments.EXPERIMENT_STATE_FAILED:
        remedy = experiment.remedy or "mend the cause"
        raise EvaluationError(
            f"the experiment failed: {experiment.error}", remedy=f"{remedy}; then {go_on}"
        )
    if experiment.state == experiments.EXPERIMENT_STATE_CANCELLED:
        raise CancelledError("the experiment was cancelled")
