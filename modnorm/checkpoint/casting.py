"""A checkpoint in another dtype: the dtype decides what a perturbation or an update rounds to."""

from pathlib import Path

import torch

from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import require_new, write_checkpoint
from modnorm.errors import InvalidInputError


def cast_checkpoint(checkpoint: Checkpoint, dtype: torch.dtype, directory: Path) -> str:
    """Write a checkpoint with its weights in another dtype, each rounded to nearest.

    Args:
        checkpoint: The model on disk.
        dtype: bfloat16, float16 or float32.
        directory: Where it goes; new or empty.

    Returns:
        SHA-256 over the physical tensors that were written, as engines tell it.

    Raises:
        InvalidInputError: a weight is beyond what the dtype holds, or the directory cannot be
            written.
        ConflictError: there is something in the directory.
        UnavailableError: writing it failed; nothing was left.
    """
    require_new(directory)
    stored = CheckpointWeights(checkpoint)
    tensors = {
        tensor.name: _cast(tensor.name, stored.read(tensor), dtype) for tensor in stored.layout
    }
    around = {
        name: _cast(name, values, dtype) if values.is_floating_point() else values
        for name, values in stored.around()
    }
    write_checkpoint(stored, tensors, around, directory)
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])


def _cast(tensor: str, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    found = values.to(dtype)
    if not torch.equal(found.isfinite(), values.isfinite()):
        largest = values[values.isfinite()].abs().max().item()
        name = str(dtype).removeprefix("torch.")
        raise InvalidInputError(
            f"{tensor} has {largest:g}, which {name} does not hold",
            field="dtype",
            remedy="choose bfloat16 or float32",
        )
    return found
