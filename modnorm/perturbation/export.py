"""One candidate as a checkpoint: what a search found, for any tool that reads models."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.weights import CandidateWeights, WeightView

CANDIDATE = "candidate.json"


def export_candidate(
    checkpoint: Checkpoint, descriptor: Descriptor, scale_map: ScaleMap, directory: Path
) -> str:
    """Write the checkpoint of a candidate: weights, and the files of its base.

    Everything of the base that is not weights is copied; the descriptor is put beside it.

    Args:
        checkpoint: The base.
        descriptor: Drawn around it, with its coefficients; published noise is made on the CPU.
        scale_map: The scale map that it was drawn with.
        directory: Where it goes; new or empty.

    Returns:
        SHA-256 over the candidate's physical tensors, as engines tell it.

    Raises:
        IncompatibleError: the candidate is of another model.
        ConflictError: there is something in the directory.
    """
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors, weights = in_memory(stored, checkpoint.digest)
    weights.apply(descriptor, scale_map)
    text = json.dumps(asdict(descriptor), indent=2, sort_keys=True) + "\n"
    write_checkpoint(stored, tensors, dict(stored.around()), directory, {CANDIDATE: text})
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])


def in_memory(
    stored: CheckpointWeights, model_digest: str
) -> tuple[dict[str, torch.Tensor], CandidateWeights]:
    """Return the physical tensors of a checkpoint by name, and what turns them into others."""
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    views = {
        name: [WeightView(values, Block.whole(tuple(values.shape)))]
        for name, values in tensors.items()
    }
    return tensors, CandidateWeights(stored.layout, views, model_digest=model_digest)
