"""Logits where two answers of one candidate part, which show whether two tokens nearly tie."""

from collections.abc import Sequence

import torch

from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.transformers_engine import weight_views
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor


class CandidateLogits:
    """A model that becomes one candidate after another; at first it is the base.

    Args:
        checkpoint: The base, to whose dtype all weights are rounded.
        dtype: Dtype of the arithmetic.
        device: Device of the model.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
        stored = CheckpointWeights(checkpoint)
        model = load_pretrained(checkpoint, dtype=dtype, attention="sdpa")
        self._model = torch.nn.Module.to(model, device)
        self._device = device
        self._weights = CandidateWeights(
            stored.layout,
            weight_views(stored.layout, self._model, dtype),
            model_digest=checkpoint.digest,
            dtype=stored.dtype,
        )

    def become(self, candidate: tuple[Descriptor, ScaleMap] | None) -> None:
        """Become a candidate; None for the base."""
        self._weights.restore()
        if candidate is not None:
            self._weights.apply(*candidate)

    @torch.inference_mode()
    def after(self, tokens: Sequence[int]) -> torch.Tensor:
        """Return the logits after tokens, float32 [vocabulary]."""
        ids = torch.tensor([list(tokens)], device=self._device)
        logits: torch.Tensor = self._model(input_ids=ids).logits[0, -1].float()
        return logits


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the number of equal tokens at the beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))
