"""The model that a finished run of an iterative method trained."""

from modnorm.analysis.finished_run import FinishedRun
from modnorm.errors import InvalidInputError, PreconditionError
from modnorm.perturbation.lineage import Lineage


def trained_lineage(run: FinishedRun) -> Lineage:
    """Return the lineage of the state that a run reports.

    Raises:
        InvalidInputError: its method trained no model.
        PreconditionError: the run has not finished, or its lineage is not there.
    """
    if run.spec.iterative is None:
        raise InvalidInputError(
            f"{run.spec.method.name} drew candidates and trained no model",
            field="rank",
            remedy="--rank 1 writes the best candidate",
        )
    lineage = run.lineage()
    if lineage is None:
        raise PreconditionError("the run directory has no lineage", field="run")
    return lineage
