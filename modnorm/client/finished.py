"""Checks of an experiment's end, before its results are read."""

from modnorm.errors import PreconditionError
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import state_name


def failure_text(failed: experiments.Experiment | experiments.Candidate) -> str:
    """Return why something failed, with the remedy if it is known; empty if it did not fail."""
    return f"{failed.error} ({failed.remedy})" if failed.remedy else failed.error


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
        remedy="`modnorm run` resumes an interrupted run, `modnorm watch` follows one in a lab",
    )
