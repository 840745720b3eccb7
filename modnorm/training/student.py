"""The student of a finished training as a checkpoint: merged, rounded once, beside its adapter."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import PeftModel

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, weights_sha256
from modnorm.checkpoint.writing import write_checkpoint
from modnorm.errors import CandidateError, UnavailableError
from modnorm.training.job import cannot_write
from modnorm.training.trainer_setup import ATTENTION

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def merged_state(checkpoint: Checkpoint, adapter: Path) -> Mapping[str, torch.Tensor]:
    """Return the base's parameters with an adapter added, in float32 on the CPU.

    The sum is computed apart from the training, so it does not depend on the device.
    """
    base = load_pretrained(checkpoint, dtype=torch.float32, attention=ATTENTION)
    merged: PreTrainedModel = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    return merged.state_dict()


def write_student(
    checkpoint: Checkpoint,
    state: Mapping[str, torch.Tensor],
    directory: Path,
    notes: Mapping[str, str],
) -> str:
    """Write a student in the dtype of its base, with the base's tokenizer and chat template.

    A tied head is stored once, as in the base.

    Args:
        checkpoint: The base.
        state: The student's parameters by name.
        directory: A new directory.
        notes: Contents of additional text files, by file name.

    Returns:
        SHA-256 over the student's physical tensors.

    Raises:
        CandidateError: a weight is not finite.
        UnavailableError: writing failed; nothing was left behind.
    """
    stored = CheckpointWeights(checkpoint)
    tensors = {}
    for tensor in stored.layout:
        whole = torch.cat([state[part.name].detach().cpu() for part in tensor.parts])
        tensors[tensor.name] = whole.to(stored.dtype)
        if not tensors[tensor.name].isfinite().all():
            raise CandidateError(
                f"the training diverged: {tensor.name} is not finite",
                field="training.learning_rate",
                remedy="lower it",
            )
    try:
        write_checkpoint(stored, tensors, dict(stored.other_tensors()), directory, notes)
    except UnavailableError as error:
        raise cannot_write(error.message) from error
    return weights_sha256(stored.layout, lambda tensor: tensors[tensor.name])
