"""Conversion of a checkpoint to another dtype, which perturbations and updates round to."""

from pathlib import Path

import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.errors import InvalidInputError


def cast_checkpoint(checkpoint: Checkpoint, dtype: torch.dtype, directory: Path) -> str:
    """Write a checkpoint with its weights in another dtype, each rounded to nearest.

    Returns:
        SHA-256 over the written physical tensors, as engines compute it.

    Raises:
        InvalidInputError: a weight overflows the dtype, or the directory cannot be written.
        ConflictError: the directory is not empty.
        UnavailableError: writing failed; nothing was left behind.
    """
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors = {
        tensor.name: _cast(tensor.name, stored.read(tensor), dtype) for tensor in stored.layout
    }
    others = {
        name: _cast(name, values, dtype) if values.is_floating_point() else values
        for name, values in stored.other_tensors()
    }
    write_checkpoint(stored, tensors, others, directory)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])


def _cast(tensor: str, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    cast = values.to(dtype)
    if not torch.equal(cast.isfinite(), values.isfinite()):
        largest = values[values.isfinite()].abs().max().item()
        name = str(dtype).removeprefix("torch.")
        raise InvalidInputError(
            f"{tensor} has {largest:g}, which {name} cannot represent",
            field="dtype",
            remedy="choose bfloat16 or float32",
        )
    return cast
