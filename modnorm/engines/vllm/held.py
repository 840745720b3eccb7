"""What one worker of vLLM holds for us: candidate weights in vLLM's own memory."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.vllm.calls import unpack_lineage
from modnorm.engines.vllm.shards import shard_views
from modnorm.engines.vllm.watch import LogitWatch
from modnorm.errors import IncompatibleError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.weights import CandidateWeights, WeightView

if TYPE_CHECKING:
    from modnorm.perturbation.lineage import Lineage


class HeldModel:
    """The candidate weights of one rank, and a watch on its logits.

    Args:
        directory: The checkpoint.
        model_digest: Its digest.
        model: vLLM's model, loaded from it.
        caches: vLLM's memory for keys and values.

    Raises:
        IncompatibleError: the parameters are not the checkpoint's tensors as this package knows
            them.
    """

    def __init__(
        self,
        directory: Path,
        model_digest: str,
        model: torch.nn.Module,
        caches: Sequence[torch.Tensor],
    ) -> None:
        stored = CheckpointWeights(resolve_checkpoint(str(directory.absolute())))
        views = shard_views(stored.layout, model, stored.dtype)
        _require_equal(stored, views)
        origin = partial(stored.read_again, model_digest)
        self.weights = CandidateWeights(
            stored.layout, views, model_digest=model_digest, origin=origin
        )
        self._views = views
        self._caches = caches
        self._maps: dict[str, ScaleMap] = {}
        self._lineage: Lineage | None = None
        self._device = next(model.parameters()).device
        self._watch = LogitWatch(self._device)
        self._watch.wrap(model)

    def learn(self, scale_map: ScaleMap) -> None:
        """Keep a scale map, in place of the one before."""
        self._maps = {scale_map.digest: scale_map}

    def rebase(self, packed: str, after: str) -> None:
        """Let the end of a lineage be the base.

        Args:
            packed: The lineage, or its last steps, as `pack_lineage` gives it.
            after: The state that those steps follow; empty where the lineage is whole.

        Raises:
            PreconditionError: the base is another state.
        """
        lineage, self._lineage = unpack_lineage(packed, after, self._lineage), None
        self._settle()
        self.weights.rebase(lineage)
        self._clean()
        self._settle()
        self._lineage = lineage

    def apply(self, descriptor: Descriptor, scale_map: str) -> Descriptor:
        """Become the candidate, from the base; return it resolved.

        Args:
            descriptor: The candidate.
            scale_map: Digest of the scale map.

        Raises:
            CandidateError: its coefficients are not finite.
        """
        self._settle()
        self._clean()
        resolved = self.weights.apply(descriptor, self._maps[scale_map])
        self._settle()
        return resolved

    def restore(self) -> None:
        """Become the base again, in weights and in what may be left in the cache."""
        self._settle()
        self.weights.restore()
        self._clean()
        self._settle()

    def is_sound(self) -> bool:
        """Whether all logits since the last change of weights were finite; waits for them."""
        return self._watch.is_sound()

    def was_sound(self) -> bool:
        """Whether they were when this was asked last; waits for nothing."""
        return self._watch.was_sound()

    def _clean(self) -> None:
        """Rid the cache of what is not finite, whether a candidate left it there or the base.

        Attention reads whole blocks and gives what a sequence does not own the weight 0. That is
        no help against a NaN which an earlier answer left there: 0 times NaN is NaN. What is
        finite stays: it may be a parked candidate's, whose logits were finite when it was parked.
        """
        if not self.is_sound():
            for cache in self._caches:
                cache.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self._watch.forget()

    def shard(self, name: str) -> list[WeightView]:
        """Return what this rank holds of a tensor."""
        return list(self._views[name])

    def _settle(self) -> None:
        """Wait for the device: vLLM may run the model on another stream than this one."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _require_equal(stored: CheckpointWeights, views: Mapping[str, tuple[WeightView, ...]]) -> None:
    """Compare every element with the checkpoint: no layout is taken on trust."""
    for tensor in stored.layout:
        base = stored.read(tensor)
        for view in views[tensor.name]:
            expected = view.block.of(base).to(view.storage.device)
            if not torch.equal(view.storage, expected):
                raise IncompatibleError(
                    f"vLLM's {tensor.name} does not hold {view.block} of the checkpoint's",
                    field="engine.name",
                    remedy="use the transformers engine for this model",
                )
