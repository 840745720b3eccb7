"""All worker ranks of a running engine behind one interface."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from vllm.v1.engine.llm_engine import LLMEngine

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import weights_sha256
from modnorm.engines.protocol import no_poll
from modnorm.engines.vllm.serialization import (
    Answer,
    pack_descriptor,
    pack_lineage,
    unpack_descriptor,
    value_of,
)
from modnorm.engines.vllm.start import vllm_failures
from modnorm.errors import EngineError
from modnorm.geometry.scale_map import ScaleMap
from modnorm.noise import Block
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.lineage import NO_LINEAGE, Lineage

SEEDS_PER_CALL = 32
"""Seeds of lineage steps in one worker call: seconds of work, even on large models."""


class RankGroup:
    """Calls every rank and combines their answers."""

    def __init__(
        self, engine: LLMEngine, layout: Layout, dtype: torch.dtype, model_digest: str
    ) -> None:
        self._engine = engine
        self._layout = layout
        self._dtype = dtype
        self._scale_map = ""
        """Digest of the scale map that the ranks have."""
        self.state: str | None = NO_LINEAGE
        """Digest of the base's lineage; None after a failed `rebase`."""
        with _calling("hold", engine):
            answers = engine.collective_rpc("modnorm_hold", args=(model_digest,))
        self.size = len([value_of(answer) for answer in answers])

    def is_pristine(self) -> bool:
        """Compare weights and pristine copies bit for bit."""
        return all(self._call("is_pristine"))

    def rebase(self, lineage: Lineage | None, *, poll: Callable[[], None] | None = None) -> None:
        """Make the end of a lineage the base on every rank; None for the model."""
        if self.state == (lineage.digest if lineage else NO_LINEAGE):
            return
        for stage in lineage.stages(self.state, SEEDS_PER_CALL) if lineage else (None,):
            (poll or no_poll)()
            held, self.state = self.state, None
            self._call("rebase", *pack_lineage(stage, held))
            self.state = stage.digest if stage else NO_LINEAGE

    def replace_model(self, checkpoint: Checkpoint) -> None:
        """Hold another model of the same architecture on every rank."""
        self.state = None
        self._call("replace_model", str(checkpoint.directory.absolute()), checkpoint.digest)
        self.state = NO_LINEAGE

    def moments(self) -> list[tuple[float, float]]:
        """Mean and variance of each physical tensor."""
        return [(mean, variance) for mean, variance in self._call("moments")[0]]

    def apply(self, descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
        """Write the candidate on every rank, with equal coefficients; return it resolved."""
        if self._scale_map != scale_map.digest:
            self._call("set_scale_map", scale_map.to_json())
            self._scale_map = scale_map.digest
        resolved = self._apply(descriptor, scale_map)
        if any(descriptor != resolved[0] for descriptor in resolved):
            self.restore()
            resolved = self._apply(resolved[0], scale_map)
        return resolved[0]

    def restore(self) -> None:
        """Restore the base on every rank."""
        self._call("restore")

    def has_finite_logits(self) -> bool:
        """Whether all logits since the last change of weights are finite."""
        return all(self._call("has_finite_logits"))

    def logit_checks(self) -> Iterator[bool]:
        """Yield, whenever advanced, whether the logits were finite at the last check.

        Each check asks the workers and yields their answers to the last check, True at first.
        Those answers have arrived: workers answer in order, and have run steps since.
        """
        answers: Callable[[], list[Answer]] = list
        while True:
            last_answers = answers
            with _calling("had_finite_logits", self._engine):
                pending = self._engine.model_executor.collective_rpc(
                    "modnorm_call", args=("had_finite_logits",), non_block=True
                )
                answers = pending.result
                values = [value_of(answer) for answer in last_answers()]
            yield all(values)

    def add_answers(
        self, reused: list[int], rows: list[int], sizes: list[int], tokens: bytes
    ) -> None:
        """Give answers to the drafts of every rank; see `RankModel.add_answers`."""
        self._call("add_answers", reused, rows, sizes, tokens)

    def sha256(self) -> str:
        """SHA-256 over all physical tensors, in canonical order and layout."""
        if self.size == 1:
            return str(self._call("sha256")[0])
        return weights_sha256(self._layout, self._gather)

    def _apply(self, descriptor: Descriptor, scale_map: ScaleMap) -> list[Descriptor]:
        resolved = self._call("apply", pack_descriptor(descriptor), scale_map.digest)
        return [unpack_descriptor(packed) for packed in resolved]

    def _gather(self, tensor: PhysicalTensor) -> torch.Tensor:
        whole = torch.empty(tensor.shape, dtype=self._dtype)
        missing = torch.ones(tensor.shape, dtype=torch.bool)
        for rank in self._call("shard", tensor.name):
            for rows, columns, data in rank:
                block = Block(tuple(rows), columns and tuple(columns))
                target = block.of(whole)
                if data:
                    flat = torch.frombuffer(bytearray(data), dtype=self._dtype)
                    target.copy_(flat.reshape(target.shape))
                block.of(missing).fill_(False)  # noqa: FBT003 - a tensor's value
        if missing.any():
            raise EngineError(f"no rank holds some rows of {tensor.name}")
        return whole

    def _call(self, method: str, *arguments: object) -> list[Any]:
        """Call a method of each rank's `RankModel` and return the answers."""
        with _calling(method, self._engine):
            answers = self._engine.collective_rpc("modnorm_call", args=(method, *arguments))
        return [value_of(answer) for answer in answers]


def _calling(method: str, engine: LLMEngine) -> AbstractContextManager[None]:
    return vllm_failures(f"calling vLLM's workers ({method})", engine)
