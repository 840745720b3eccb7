"""Checks of an experiment's end, before its results are read."""

from modnorm.client.watch import TERMINAL_STATES
from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name
from modnorm.wire.run_messages import failure_text


def check_succeeded(experiment: experiments.Experiment) -> None:
    """Make sure that an experiment has all of its results.

    Raises:
        PreconditionError: it has not succeeded.
    """
    if experiment.state == experiments.EXPERIMENT_STATE_SUCCEEDED:
        return
    reason = f": {failure_text(experiment)}" if experiment.error else ""
    raise PreconditionError(
        "only an experiment that succeeded has results, and this one is "
        f"{state_name(experiment.state)}{reason}",
        field="run",
        remedy="its spec, run or submitted again, reuses the finished work"
        if experiment.state in TERMINAL_STATES
        else "`modnorm watch` follows it to its end",
    )
