"""The model that a finished experiment of an iterative method trained."""

from modnorm.client.client import ModnormClient
from modnorm.client.finished import check_succeeded
from modnorm.errors import InvalidInputError
from modnorm.perturbation.lineage import Lineage
from modnorm.v1 import experiment_pb2 as experiments
from modnorm.wire.conversions import spec_from_proto


def trained_lineage(client: ModnormClient, experiment: experiments.Experiment) -> Lineage:
    """Return the lineage of the state that an experiment reports.

    Args:
        client: Connection to the lab that ran the experiment.
        experiment: The experiment as `get` returns it.

    Raises:
        InvalidInputError: its method trained no model.
        PreconditionError: it has not succeeded.
    """
    spec = spec_from_proto(experiment.spec)
    if spec.iterative is None:
        raise InvalidInputError(
            f"{spec.method.name} drew candidates and trained no model",
            field="rank",
            remedy="--rank 1 writes the best candidate",
        )
    check_succeeded(experiment)
    text = client.artifact(experiment.id, experiments.ARTIFACT_KIND_LINEAGE).decode()
    return Lineage.from_json(text)
