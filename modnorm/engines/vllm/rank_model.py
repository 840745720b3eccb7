"""One rank's part of a model: candidate weights in vLLM's own memory.

`RankGroup` calls the public methods by name. They take and return plain values (`serialization`).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.vllm.internals.drafting import connect_drafts, install_speculator
from modnorm.engines.vllm.internals.layers import keep_plain_weights, shard_views
from modnorm.engines.vllm.internals.logit_check import LogitCheck
from modnorm.engines.vllm.internals.message_queues import fix_queues
from modnorm.engines.vllm.internals.register import check_stage
from modnorm.engines.vllm.internals.register_entry import Stage
from modnorm.engines.vllm.internals.worker_start import write_worker_errors
from modnorm.engines.vllm.serialization import (
    Answer,
    Value,
    answer,
    pack_descriptor,
    unpack_descriptor,
    unpack_lineage,
)
from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.held_tensor import WeightView

if TYPE_CHECKING:
    from vllm.config import ModelConfig
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from modnorm.engines.drafts.matching import AnswerTable
    from modnorm.perturbation.lineage import Lineage


class RankModel:
    """The candidate weights of one rank, and a check of its logits."""

    def __init__(
        self,
        directory: Path,
        model_digest: str,
        model: torch.nn.Module,
        caches: Sequence[torch.Tensor],
        table: "AnswerTable | None" = None,
    ) -> None:
        stored = CheckpointWeights(resolve_checkpoint(str(directory.absolute())))
        views = shard_views(stored.layout, model, stored.dtype)
        _require_equal(stored, views)
        origin = partial(stored.read_unchanged, model_digest)
        self.weights = CandidateWeights(
            stored.layout, views, model_digest=model_digest, origin=origin
        )
        self._views = views
        self._caches = caches
        self._table = table
        self._maps: dict[str, ScaleMap] = {}
        self._lineage: Lineage | None = None
        self._device = next(model.parameters()).device
        self._check = LogitCheck(self._device)
        self._check.wrap(model)

    def set_scale_map(self, scale_map: str) -> None:
        """Replace the scale map by one given as JSON."""
        new = ScaleMap.from_json(scale_map)
        self._maps = {new.digest: new}

    def replace_model(self, directory: str, model_digest: str) -> None:
        """Hold another model of the same architecture."""
        stored = CheckpointWeights(resolve_checkpoint(directory))
        self._lineage = None
        self._synchronize()
        self.weights.replace_model(model_digest, partial(stored.read_unchanged, model_digest))
        self._clear_cache()
        self._synchronize()

    def rebase(self, packed: str, after: str) -> None:
        """Make the end of a lineage the base; see `pack_lineage` for the arguments."""
        lineage, self._lineage = unpack_lineage(packed, after, self._lineage), None
        self._synchronize()
        self.weights.rebase(lineage)
        self._clear_cache()
        self._synchronize()
        self._lineage = lineage

    def apply(self, descriptor: bytes, scale_map: str) -> Value:
        """Write the candidate's weights over the base; return its descriptor, resolved."""
        self._synchronize()
        self._clear_cache()
        resolved = self.weights.apply(unpack_descriptor(descriptor), self._maps[scale_map])
        self._synchronize()
        return pack_descriptor(resolved)

    def restore(self) -> None:
        """Restore the base's weights and clear the cache of NaN and infinity."""
        self._synchronize()
        self.weights.restore()
        self._clear_cache()
        self._synchronize()

    def moments(self) -> Value:
        """Return mean and variance of each tensor; the rank must hold all of them."""
        return [list(pair) for pair in self.weights.moments()]

    def sha256(self) -> str:
        """SHA-256 of the weights; the rank must hold all of them."""
        return self.weights.sha256()

    def is_pristine(self) -> int:
        """Whether the weights equal the base bit for bit: 1 or 0."""
        return int(self.weights.is_pristine())

    def has_finite_logits(self) -> int:
        """Whether all logits since the last change of weights are finite; waits for them."""
        return int(self._check.has_finite_logits())

    def had_finite_logits(self) -> int:
        """Whether the logits were finite at the last call of this method; does not wait."""
        return int(self._check.had_finite_logits())

    def add_answers(
        self, reused: list[int], rows: list[int], sizes: list[int], tokens: bytes
    ) -> None:
        """Add answers (prompt rows, sizes, int32 tokens) to the table of drafts, if any."""
        if self._table is None:
            return
        ends = np.cumsum(sizes)
        answers = np.split(np.frombuffer(tokens, dtype=np.int32), ends[:-1])
        self._synchronize()
        self._table.clear(reused)
        self._table.add(zip(rows, answers, strict=True))
        self._synchronize()

    def shard(self, name: str) -> Value:
        """Return the blocks of one tensor on this rank: rows, columns or None, bytes."""
        return [
            [
                list(view.block.rows),
                None if view.block.columns is None else list(view.block.columns),
                view.storage.contiguous().view(torch.uint8).cpu().numpy().tobytes(),
            ]
            for view in self._views[name]
        ]

    def _clear_cache(self) -> None:
        """Clear NaN and infinity from the cache.

        Attention reads whole blocks and weights other sequences' entries by 0, but 0 times NaN is
        NaN.
        """
        if not self._check.has_finite_logits():
            for cache in self._caches:
                cache.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self._check.forget()

    def _synchronize(self) -> None:
        """Wait for the device: vLLM may run the model on another stream."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _require_equal(stored: CheckpointWeights, views: Mapping[str, tuple[WeightView, ...]]) -> None:
    """Compare every element with the checkpoint, so that no layout is assumed."""
    for tensor in stored.layout:
        base = stored.read(tensor)
        for view in views[tensor.name]:
            expected = view.block.of(base).to(view.storage.device)
            if not torch.equal(view.storage, expected):
                raise IncompatibleError(
                    f"vLLM's {tensor.name} differs from {view.block} of the checkpoint",
                    field="engine.name",
                    remedy="use the transformers engine for this model",
                )


# vLLM imports this module before it loads a model. It has no later hook.
write_worker_errors()
keep_plain_weights()
fix_queues()
install_speculator()


class CandidateWorker:
    """Candidate weights on one rank; mixed into vLLM's worker class."""

    if TYPE_CHECKING:
        model_config: ModelConfig
        model_runner: GPUModelRunner
        modnorm_rank: RankModel

        def get_model(self) -> torch.nn.Module:
            """Return vLLM's model."""

    def modnorm_hold(self, model_digest: str) -> Answer:
        """Check the layout and copy the pristine weights; call it once, before any other."""

        def hold() -> Value:
            check_stage(Stage.WORKER, self)
            directory = Path(self.model_config.model)
            caches = self.model_runner.kv_caches
            self.modnorm_rank = RankModel(
                directory, model_digest, self.get_model(), caches, connect_drafts(self)
            )
            return None

        return answer(hold)

    def modnorm_call(self, method: str, *arguments: Value) -> Answer:
        """Call a method of `RankModel`; arguments and answer are plain values."""
        return answer(lambda: getattr(self.modnorm_rank, method)(*arguments))
