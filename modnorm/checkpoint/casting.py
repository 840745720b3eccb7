"""Conversion of a checkpoint to another dtype, which perturbations and updates round to."""

from pathlib import Path

import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, rounded, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint


def cast_checkpoint(checkpoint: Checkpoint, dtype: torch.dtype, directory: Path) -> str:
    """Write a checkpoint with its weights in another dtype, each rounded to nearest.

    The weights may be stored in several dtypes, and `config.json` may state another one.

    Returns:
        SHA-256 over the written physical tensors, as engines compute it.

    Raises:
        InvalidInputError: a weight overflows the dtype, or the directory cannot be written.
        ConflictError: the directory is not empty.
        UnavailableError: writing failed; nothing was left behind.
    """
    require_new(directory)
    stored = CheckpointWeights(checkpoint, cast_to=dtype)
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    others = {
        name: rounded(name, values, dtype) if values.is_floating_point() else values
        for name, values in stored.other_tensors()
    }
    write_checkpoint(stored, tensors, others, directory)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
