"""Measurement of the displacement of candidates of one loaded model."""

import torch
import transformers

from modnorm.checkpoint.pretrained import arithmetic_dtype, load_pretrained
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights, dtype_name
from modnorm.engines.failures import engine_failures
from modnorm.engines.parameter_views import weight_views
from modnorm.errors import CandidateError, EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.radius.displacement import Displacement
from modnorm.radius.probe import Probe

ATTENTION = "eager"
"""Attention implementation of the published measurements."""


def environment(checkpoint: Checkpoint, device: torch.device) -> dict[str, str]:
    """Return the properties that may affect the rounding of measurements, for the record."""
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


class DisplacementMeter:
    """Measures candidates of one model; it holds a pristine copy and the base's outputs.

    Raises:
        InvalidInputError: the stored tensors do not match `config.json`.
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
        """Return the displacement of a candidate from the base, then restore the base.

        Raises:
            CandidateError: the candidate's outputs are not finite.
            EngineError: the infrastructure failed, or something else changed the weights.
        """
        with engine_failures("measuring a candidate"):
            if not self._weights.is_pristine():
                raise EngineError(
                    "the weights are not the base: something else wrote to them",
                    remedy="start the command again",
                )
            try:
                self._weights.apply(descriptor, scale_map)
                displacement = self._probe.displacement()
            finally:
                self._weights.restore()
        if not displacement.is_finite:
            raise CandidateError(
                f"the outputs of seed {descriptor.seed} at {descriptor.radius:g} are not finite",
                field="radii",
                remedy="remove the radius",
            )
        return displacement
