"""The servers under measurement: an ensemble drawn from a scale map, answered in one way."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import uvicorn

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import Completion, EngineSettings, GenerationLimits
from modnorm.engines.settings import Numerics
from modnorm.engines.vllm.numerics import choose_numerics
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.adapters import write_adapter
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import sample_descriptors
from modnorm.prediction.ensemble_adapters import vllm_rank
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.serving.adapter_answers import AdapterAnswers
from modnorm.serving.answering import ADAPTER_SEQUENCES, Answering
from modnorm.serving.api_keys import ApiKeys
from modnorm.serving.app import Server, build_app
from modnorm.serving.metrics import ServerMetrics
from modnorm.serving.request_limit import RequestLimit
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers
from modnorm.spec import ModelSpec

if TYPE_CHECKING:
    from modnorm.engines.vllm.adapter_engine import AdapterEngine

WAYS: Mapping[str, Sequence[str]] = {
    "base": ("ensemble",),
    "adapters": ("ensemble", "expert-1"),
    "full": ("ensemble", "expert-1"),
    "merged": ("ensemble",),
}
"""The models that each server is asked for."""
_SEED = 42


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What is served, and its limits."""

    model: str
    experts: int
    rank: int
    sigma: float
    max_tokens: int
    max_length: int
    cache_gib: float
    clients: int

    def checkpoint(self) -> Checkpoint:
        """Return the base."""
        return resolve_checkpoint(self.model)

    def ensemble(self, rank: int | None, experts: int) -> EnsembleDefinition:
        """Return the first candidates of a population of `randopt`."""
        base = self.checkpoint()
        scale_map = build_scale_map(
            "randopt", base, rank=rank, target_modules="all" if rank is None else "all-linear"
        )
        drawn = sample_descriptors(
            scale_map, radius=self.sigma, noise="portable-v1", seed=_SEED, size=experts,
            pool="nested",
        )  # fmt: skip
        resolved = (_resolved(descriptor, scale_map) for descriptor in drawn)
        return EnsembleDefinition(
            ModelSpec(name=self.model),
            base.digest,
            TaskIdentity("countdown", "countdown-v1", None, self.max_tokens),
            scale_map,
            experts,
            tuple(Expert(index, descriptor) for index, descriptor in enumerate(resolved)),
        )


def _resolved(descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
    """Return a candidate of isotropic noise with its coefficients."""
    coefficient = torch.tensor(descriptor.radius / sqrt(scale_map.rank or 1), dtype=torch.float32)
    return descriptor.resolved((coefficient.item(),) * len(scale_map.active))


def run_server(asked: ServingPlan, way: str, ready: Path) -> None:
    """Serve until SIGINT; write the address to a file once requests are answered."""
    choose_numerics(Numerics.FAST)
    rank = asked.rank if way in {"adapters", "merged"} else None
    ensemble = ServedEnsemble(
        asked.ensemble(rank, 1 if way == "base" else asked.experts),
        asked.checkpoint(),
        asked.max_length,
    )
    metrics = ServerMetrics()
    answering = _answering(asked, way, ensemble, metrics)
    parts = Server(
        ensemble, answering, RequestLimit(2 * asked.clients, metrics), metrics, ApiKeys(),
        int(time.time()),
    )  # fmt: skip
    with suppress(KeyboardInterrupt), socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(_serve(parts, listener, ready))


async def _serve(parts: Server, listener: socket.socket, ready: Path) -> None:
    config = uvicorn.Config(build_app(parts), log_level="warning", lifespan="off")
    try:
        await parts.answering.start()
        address = {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/v1"}
        draft = ready.with_suffix(".draft")
        draft.write_text(json.dumps(address))
        draft.replace(ready)
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        parts.answering.stop()


def _answering(
    asked: ServingPlan, way: str, ensemble: ServedEnsemble, metrics: ServerMetrics
) -> Answering:
    """Return a way to answer, with a key-value cache of the requested size."""
    from modnorm.engines.vllm.adapter_engine import AdapterEngine  # noqa: PLC0415 - needs vLLM
    from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - as above
    from modnorm.engines.vllm.start import Overrides  # noqa: PLC0415 - as above

    overrides = Overrides({"kv_cache_memory_bytes": int(asked.cache_gib * 2**30)})
    base, definition = ensemble.base, ensemble.definition
    if way in {"full", "merged"}:
        settings = EngineSettings(max_model_len=asked.max_length)
        return SwitchingAnswers(
            lambda: VllmEngine(base, settings, overrides=overrides),
            ensemble.models, ensemble.task, metrics, ensemble.encoder,
        )  # fmt: skip
    settings = EngineSettings(max_model_len=asked.max_length, max_num_seqs=ADAPTER_SEQUENCES)
    rank = asked.rank if way == "adapters" else None
    largest = None if rank is None else vllm_rank(rank)

    def load() -> AdapterEngine | _BaseAlone:
        engine = AdapterEngine(base, largest, asked.experts, settings, overrides=overrides)
        return engine if rank is not None else _BaseAlone(engine)

    def write(expert: Expert, folder: Path) -> None:
        if rank is not None:
            write_adapter(base, expert.descriptor, definition.scale_map, folder)

    return AdapterAnswers(load, ensemble.models, definition, ensemble.task, write)


class _BaseAlone:
    """The base in place of an adapter."""

    def __init__(self, engine: "AdapterEngine") -> None:
        self._engine = engine
        self.start = engine.start
        self.stop = engine.stop

    @property
    def is_loading(self) -> bool:
        return self._engine.is_loading

    @property
    def is_alive(self) -> bool:
        return self._engine.is_alive

    async def add(self, adapter: int, folder: Path) -> None:
        """Load nothing."""

    def generate(
        self, adapter: int, prompt: Sequence[int], limits: GenerationLimits, *, streams: bool
    ) -> AsyncGenerator[str | Completion]:
        """Answer with the base, whatever the adapter."""
        del adapter
        return self._engine.generate(None, prompt, limits, streams=streams)
