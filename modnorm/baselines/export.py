"""The end of a lineage as a checkpoint: what a run trained, for any tool that reads models."""

from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.errors import IncompatibleError
from modnorm.perturbation.candidate_export import in_memory
from modnorm.perturbation.lineage import Lineage

LINEAGE = "lineage.json"


def export_state(checkpoint: Checkpoint, lineage: Lineage, directory: Path) -> str:
    """Write the checkpoint of a state: weights, and the files of its base.

    Everything of the base that is not weights is copied; the lineage is put beside it.

    Args:
        checkpoint: The base.
        lineage: Of that base, in portable noise; published noise is made on the CPU here.
        directory: Where it goes; new or empty.

    Returns:
        SHA-256 over the state's physical tensors, as engines tell it.

    Raises:
        IncompatibleError: the lineage is of another model.
        ConflictError: there is something in the directory.
        InvalidInputError: the directory cannot be written.
        UnavailableError: writing it failed; nothing was left.
    """
    if lineage.model_digest != checkpoint.digest:
        raise IncompatibleError(
            f"the lineage is of model {lineage.model_digest}, "
            f"{checkpoint.name} is {checkpoint.digest}",
            field="model",
            remedy="name the model and the revision that the run began with",
        )
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors, weights = in_memory(stored, checkpoint.digest)
    weights.rebase(lineage)
    notes = {LINEAGE: lineage.to_json()}
    write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
