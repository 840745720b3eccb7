"""Export of a trained state as a checkpoint that any tool can read."""

from pathlib import Path

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.errors import IncompatibleError
from modnorm.perturbation.candidate_export import load_tensors
from modnorm.perturbation.lineage import Lineage

LINEAGE = "lineage.json"


def export_state(checkpoint: Checkpoint, lineage: Lineage, directory: Path) -> str:
    """Write a state's weights, the other files of its base, and its lineage.

    Args:
        checkpoint: The base.
        lineage: A lineage of that base; published noise is generated on the CPU.
        directory: Target directory, new or empty.

    Returns:
        SHA-256 over the state's physical tensors, as engines compute it.

    Raises:
        IncompatibleError: the lineage is of another model.
        ConflictError: the directory is not empty.
        InvalidInputError: the directory cannot be written.
        UnavailableError: writing failed; nothing was left behind.
    """
    if lineage.model_digest != checkpoint.digest:
        raise IncompatibleError(
            f"the lineage is of model {lineage.model_digest}, "
            f"{checkpoint.name} is {checkpoint.digest}",
            field="model",
            remedy="name the model and revision of the run",
        )
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors, weights = load_tensors(stored, checkpoint.digest)
    weights.rebase(lineage)
    notes = {LINEAGE: lineage.to_json()}
    write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
