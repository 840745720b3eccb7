"""What vLLM's workers are extended with: `worker_extension_cls` names the class here.

Methods are called by name over `collective_rpc`, on every rank. Their names begin with `modnorm_`,
as they share a namespace with vLLM's worker.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from modnorm.engines.vllm.calls import (
    Answer,
    Value,
    answer,
    pack_descriptor,
    unpack_descriptor,
)
from modnorm.engines.vllm.faults import write_faults
from modnorm.engines.vllm.held import HeldModel
from modnorm.engines.vllm.linear import keep_plain_weights
from modnorm.engines.vllm.queues import mend_queues
from modnorm.geometry.scale_map import ScaleMap

if TYPE_CHECKING:

    class _ModelConfig:
        model: str

    class _Runner:
        kv_caches: list[torch.Tensor]


# vLLM imports this module before it loads a model, and gives no later occasion.
keep_plain_weights()
mend_queues()
write_faults()


class CandidateWorker:
    """Candidate weights on one rank; mixed into vLLM's worker class."""

    if TYPE_CHECKING:
        model_config: _ModelConfig
        model_runner: _Runner
        modnorm_held: HeldModel

        def get_model(self) -> torch.nn.Module:
            """Return vLLM's model."""

    def modnorm_hold(self, model_digest: str) -> Answer:
        """Check the layout and take the pristine copy; once, before any other call."""

        def hold() -> Value:
            directory = Path(self.model_config.model)
            self.modnorm_held = HeldModel(
                directory, model_digest, self.get_model(), self.model_runner.kv_caches
            )
            return {"kernels": int(self.modnorm_held.weights.has_kernels)}

        return answer(hold)

    def modnorm_learn(self, scale_map: str) -> Answer:
        """Keep a scale map, as JSON, for the candidates to come."""
        return answer(lambda: self.modnorm_held.learn(ScaleMap.from_json(scale_map)))

    def modnorm_rebase(self, lineage: str, after: str) -> Answer:
        """Let the end of a lineage be the base: see `pack_lineage`."""
        return answer(lambda: self.modnorm_held.rebase(lineage, after))

    def modnorm_moments(self) -> Answer:
        """Return mean and variance of each tensor of a rank that holds all of them."""
        return answer(lambda: [list(pair) for pair in self.modnorm_held.weights.moments()])

    def modnorm_is_pristine(self) -> Answer:
        """Whether the weights are those of the base, bit for bit: 1 or 0."""
        return answer(lambda: int(self.modnorm_held.weights.is_pristine()))

    def modnorm_apply(self, descriptor: dict[str, Value], scale_map: str) -> Answer:
        """Become a candidate; the answer is its descriptor, resolved."""

        def apply() -> Value:
            resolved = self.modnorm_held.apply(unpack_descriptor(descriptor), scale_map)
            return pack_descriptor(resolved)

        return answer(apply)

    def modnorm_restore(self) -> Answer:
        """Become the base."""
        return answer(self.modnorm_held.restore)

    def modnorm_is_sound(self) -> Answer:
        """Whether all logits since the last change of weights were finite: 1 or 0."""
        return answer(lambda: int(self.modnorm_held.is_sound()))

    def modnorm_was_sound(self) -> Answer:
        """Whether they were when this was asked last: 1 or 0, without waiting for the device."""
        return answer(lambda: int(self.modnorm_held.was_sound()))

    def modnorm_sha256(self) -> Answer:
        """SHA-256 of the weights of a rank that holds all of them."""
        return answer(self.modnorm_held.weights.sha256)

    def modnorm_shard(self, name: str) -> Answer:
        """Return the blocks of one tensor on this rank: rows, columns or None, bytes."""

        def shard() -> Value:
            return [
                {
                    "rows": list(view.block.rows),
                    "columns": None if view.block.columns is None else list(view.block.columns),
                    "bytes": view.storage.contiguous().view(torch.uint8).cpu().numpy().tobytes(),
                }
                for view in self.modnorm_held.shard(name)
            ]

        return answer(shard)
