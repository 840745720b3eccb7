"""Candidates built from the stored, fused tensors alone, to which engines are compared."""

from modnorm.baselines.updates import es_step
from modnorm.checkpoint.families import physical_layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.lineage import Lineage, Step


def independent_sha256(
    checkpoint: Checkpoint, descriptor: Descriptor, scale_map: ScaleMap
) -> tuple[str, Descriptor]:
    """Build a candidate from the stored, fused tensors alone."""
    weights = independent_state(checkpoint)
    resolved = weights.apply(descriptor, scale_map)
    return weights.sha256(), resolved


def independent_state(checkpoint: Checkpoint) -> CandidateWeights:
    stored = CheckpointWeights(checkpoint)
    tensors = {tensor.name: stored.read(tensor) for tensor in stored.layout}
    views = {
        tensor.name: [WeightView(tensors[tensor.name], Block((0, tensor.shape[0]), None))]
        for tensor in stored.layout
    }
    return CandidateWeights(stored.layout, views, model_digest=checkpoint.digest)


def lineage_of(checkpoint: Checkpoint) -> Lineage:
    """Two updates of ES and one with an amplitude a tensor."""
    amplitudes = tuple(0.5 + index % 2 for index in range(len(physical_layout(checkpoint.config))))
    shaped = Step("zo_finetuner", (5,), (0.25,), 0.03125, amplitudes=amplitudes)
    updates = (es_step((1, 2), (0.0, 1.0), 0.02), es_step((3, 4), (0.5, 0.25), 0.02))
    return Lineage(checkpoint.digest, "portable-v1", steps=(*updates, shaped))
