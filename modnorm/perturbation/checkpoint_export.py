"""Export of candidates and trained states as checkpoints that any tool can read."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.lineage import Lineage
from modnorm.perturbation.model_card import CARD

CANDIDATE, LINEAGE = "candidate.json", "lineage.json"


def export_candidate(
    checkpoint: Checkpoint,
    descriptor: Descriptor,
    scale_map: ScaleMap,
    directory: Path,
    *,
    card: str | None = None,
) -> str:
    """Write a candidate's weights, the other files of its base, and its descriptor.

    Args:
        checkpoint: The base.
        descriptor: The candidate, resolved; published noise is generated on the CPU.
        scale_map: The scale map that it was drawn with.
        directory: Target directory, new or empty.
        card: Text of its model card; that of the base stays when None.

    Returns:
        SHA-256 over the candidate's physical tensors, as engines compute it.

    Raises:
        IncompatibleError: the candidate belongs to another model.
        ConflictError: the directory is not empty.
    """
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors, weights = _load_tensors(stored, checkpoint.digest)
    weights.apply(descriptor, scale_map)
    text = json.dumps(asdict(descriptor), indent=2, sort_keys=True) + "\n"
    notes = {CANDIDATE: text, **_card(card)}
    write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])


def candidate_digests(
    checkpoint: Checkpoint, descriptors: Sequence[Descriptor], scale_map: ScaleMap
) -> tuple[str, ...]:
    """Return the digest of each candidate's weights, as `export_candidate` returns it.

    Args:
        checkpoint: The base.
        descriptors: The candidates, resolved.
        scale_map: The scale map that they were drawn with.

    Raises:
        IncompatibleError: the candidates belong to another model.
    """
    stored = CheckpointWeights(checkpoint)
    tensors, weights = _load_tensors(stored, checkpoint.digest)
    digests = []
    for descriptor in descriptors:
        weights.apply(descriptor, scale_map)
        digests.append(weights_sha256(stored.layout, lambda tensor: tensors[tensor.name]))
        weights.restore()
    return tuple(digests)


def export_state(
    checkpoint: Checkpoint, lineage: Lineage, directory: Path, *, card: str | None = None
) -> str:
    """Write a state's weights, the other files of its base, and its lineage.

    Args:
        checkpoint: The base.
        lineage: A lineage of that base; published noise is generated on the CPU.
        directory: Target directory, new or empty.
        card: Text of its model card; that of the base stays when None.

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
    tensors, weights = _load_tensors(stored, checkpoint.digest)
    weights.rebase(lineage)
    notes = {LINEAGE: lineage.to_json(), **_card(card)}
    write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])


def _card(text: str | None) -> dict[str, str]:
    return {} if text is None else {CARD: text}


def _load_tensors(
    stored: CheckpointWeights, model_digest: str
) -> tuple[dict[str, torch.Tensor], CandidateWeights]:
    """Return the physical tensors of a checkpoint by name, and the weights that perturb them."""
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    views = {
        name: [WeightView(values, Block.whole(tuple(values.shape)))]
        for name, values in tensors.items()
    }
    return tensors, CandidateWeights(stored.layout, views, model_digest=model_digest)
