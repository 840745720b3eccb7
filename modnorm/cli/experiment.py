"""One experiment from submission to its end, as seen from the command line."""

import re
from collections.abc import Callable

from modnorm.cli.console import on_one_line, stderr
from modnorm.cli.options import settings
from modnorm.cli.progress import catch_up, display, follow
from modnorm.client import ModnormClient
from modnorm.client.inputs import check_inputs
from modnorm.client.resumption import take_up
from modnorm.errors import CancelledError, EvaluationError, UnavailableError
from modnorm.spec import ExperimentSpec
from modnorm.v1 import experiment_pb2 as experiments

SAME_COMMAND = "the same command goes on from here"
SUBMIT_AGAIN = "submit it again: what is finished is taken over"
_NO_REMARKS = "created"
_REMEDY = re.compile(r"[a-z`][^\s,]* ")
"""Words, as remedies begin; a name alone or numbers, such as a shape, are part of a reason."""


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
        go_on: What to do where it failed and the cause is mended.

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
    """Make a failed or cancelled end the command's own.

    Args:
        experiment: An experiment that ended.
        go_on: What to do where it failed and the cause is mended.

    Raises:
        EvaluationError: the experiment failed; the message is its reason.
        CancelledError: it was cancelled.
    """
    if experiment.state == experiments.EXPERIMENT_STATE_FAILED:
        reason, remedy = _parted(experiment.error)
        raise EvaluationError(f"the experiment failed: {reason}", remedy=f"{remedy}; then {go_on}")
    if experiment.state == experiments.EXPERIMENT_STATE_CANCELLED:
        raise CancelledError("the experiment was cancelled")


def _parted(error: str) -> tuple[str, str]:
    """Return the reason of a failure and its remedy, which a lab stores as one text."""
    start = _last_group(error)
    remedy = error[start + 1 : -1]
    if start > 0 and _REMEDY.match(remedy):
        return error[:start].rstrip(), remedy
    return error, "mend the cause"


def _last_group(text: str) -> int:
    """Return where the brackets begin that end a text, others inside them; -1 if none do."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if depth <= 0:
            return place if text.endswith(")") else -1
    return -1
