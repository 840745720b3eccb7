"""What all that reads a finished experiment asks of it first."""

from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name


def check_succeeded(experiment: experiments.Experiment) -> None:
    """Make sure that an experiment has all of its results.

    Raises:
        PreconditionError: it has not succeeded.
    """
    if experiment.state == experiments.EXPERIMENT_STATE_SUCCEEDED:
        return
    reason = f": {experiment.error}" if experiment.error else ""
    raise PreconditionError(
        "only an experiment that succeeded has results, and this one is "
        f"{state_name(experiment.state)}{reason}",
        field="run",
        remedy="`modnorm run` goes on with a broken-off one, `modnorm watch` follows it",
    )
