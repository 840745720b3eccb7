"""A model for calibration: frozen, with eager attention and without caches."""

from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from modnorm.checkpoint.pretrained import arithmetic_dtype, load_pretrained
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name


@dataclass(frozen=True, slots=True)
class FrozenModel:
    """A decoder in evaluation mode whose parameters need no gradients."""

    decoder: nn.Module
    """Embedding, layers and final norm."""
    layers: tuple[nn.Module, ...]
    final_norm: nn.Module
    head: torch.Tensor
    """Weight of the output head, shape (vocabulary, hidden); the embedding if tied."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.head.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights and activations."""
        return self.head.dtype


class _CausalModel(Protocol):
    """The methods used of transformers' models, which have no types here."""

    def eval(self) -> nn.Module: ...
    def get_decoder(self) -> nn.Module: ...
    def get_output_embeddings(self) -> nn.Linear: ...


def freeze(model: PreTrainedModel) -> FrozenModel:
    """Return the parts of a causal language model, which must use eager attention."""
    causal = cast("_CausalModel", model)
    causal.eval().requires_grad_(requires_grad=False)
    decoder = causal.get_decoder()
    return FrozenModel(
        decoder=decoder,
        layers=tuple(cast("nn.ModuleList", decoder.get_submodule("layers"))),
        final_norm=decoder.get_submodule("norm"),
        head=causal.get_output_embeddings().weight,
    )


def calibration_precision(checkpoint: Checkpoint, device: torch.device) -> str:
    """Return the name of the dtype that a calibration computes in, as in profiles.

    Raises:
        InvalidInputError: the stored weights do not match the family.
    """
    return dtype_name(arithmetic_dtype(CheckpointWeights(checkpoint).dtype, device))


def load_frozen(checkpoint: Checkpoint, device: torch.device) -> FrozenModel:
    """Load a checkpoint in its arithmetic dtype on the device, with eager attention.

    Raises:
        InvalidInputError: the stored weights do not match the family.
    """
    dtype = arithmetic_dtype(CheckpointWeights(checkpoint).dtype, device)
    model = load_pretrained(checkpoint, dtype=dtype, attention="eager")
    cast("nn.Module", model).to(device)
    return freeze(model)
