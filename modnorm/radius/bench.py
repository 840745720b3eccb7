"""A model that becomes one candidate after another and is compared with its base."""

import torch
import transformers

from modnorm.checkpoint.pretrained import arithmetic_dtype, dtype_name, load_pretrained
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.failures import engine_failures
from modnorm.engines.parameter_views import weight_views
from modnorm.errors import CandidateError, EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.radius.displacement import Displacement
from modnorm.radius.probe import Probe

ATTENTION = "eager"
"""Attention as the published measurements have it."""


def environment(checkpoint: Checkpoint, device: torch.device) -> dict[str, str]:
    """Return what the rounding of measurements may depend on, for the record."""
    on_gpu = device.type == "cuda"
    weights = CheckpointWeights(checkpoint).dtype
    return {
        "arithmetic": dtype_name(arithmetic_dtype(weights, device)),
        "attention": ATTENTION,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "dtype": dtype_name(weights),
        "threads": str(torch.get_num_threads()),
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
    }


class Bench:
    """One model in the dtype that it computes in, its pristine copy, and the base's outputs.

    Args:
        checkpoint: The model on disk.
        prompts: Token ids of each prompt.
        batch_size: Prompts run at a time.
        device: Where to compute.

    Raises:
        InvalidInputError: the stored tensors are not what `config.json` says.
        IncompatibleError: the model cannot be perturbed exactly.
        EngineError: the infrastructure failed.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        prompts: list[list[int]],
        *,
        batch_size: int,
        device: torch.device,
    ) -> None:
        stored = CheckpointWeights(checkpoint)
        arithmetic = arithmetic_dtype(stored.dtype, device)
        with engine_failures(f"loading {checkpoint.name}"):
            model = load_pretrained(checkpoint, dtype=arithmetic, attention=ATTENTION)
            model.eval().requires_grad_(requires_grad=False)
            torch.nn.Module.to(model, device)
            self._weights = CandidateWeights(
                stored.layout,
                weight_views(stored.layout, model, arithmetic),
                model_digest=checkpoint.digest,
                dtype=stored.dtype,
            )
            self._probe = Probe(model, prompts, batch_size=batch_size)

    def displacement(self, descriptor: Descriptor, scale_map: ScaleMap) -> Displacement:
        """Return how far one candidate is from the base; the base is back afterwards.

        Raises:
            CandidateError: the candidate's outputs are not finite.
            EngineError: the infrastructure failed, or something else changed the weights.
        """
        with engine_failures("measuring a candidate"):
            if not self._weights.is_pristine():
                raise EngineError(
                    "the weights are not the base any more: something else wrote to them",
                    remedy="start the command again",
                )
            try:
                self._weights.apply(descriptor, scale_map)
                found = self._probe.displacement()
            finally:
                self._weights.restore()
        if not found.is_finite:
            raise CandidateError(
                f"the outputs of seed {descriptor.seed} at {descriptor.radius:g} are not finite",
                field="radii",
                remedy="leave the radius out",
            )
        return found
