"""The servers under measurement: an ensemble drawn from a scale map, asked over HTTP."""

import asyncio
import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn

from modnorm.checkpoint.reference import Checkpoint, resolve_checkpoint
from modnorm.engines import EngineSettings
from modnorm.engines.settings import Numerics
from modnorm.engines.vllm.numerics import choose_numerics
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.methods import build_scale_map
from modnorm.perturbation.sampling import sample_descriptors
from modnorm.prediction.ensemble_definition import EnsembleDefinition, Expert, TaskIdentity
from modnorm.serving.api_errors import ApiKeys, RequestLimit, ServerMetrics
from modnorm.serving.app import Server, build_app
from modnorm.serving.served_ensemble import ServedEnsemble
from modnorm.serving.switching_answers import SwitchingAnswers
from modnorm.spec import ModelSpec

MODELS = ("ensemble", "expert-1")
"""The models that the server is asked for."""
_SEED = 42


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What is served, and its limits."""

    model: str
    experts: int
    sigma: float
    max_tokens: int
    max_length: int
    cache_gib: float
    clients: int

    def checkpoint(self) -> Checkpoint:
        """Return the base."""
        return resolve_checkpoint(self.model)

    def ensemble(self) -> EnsembleDefinition:
        """Return the first candidates of a population of `randopt`."""
        base = self.checkpoint()
        scale_map = build_scale_map("randopt", base)
        drawn = sample_descriptors(
            scale_map, radius=self.sigma, noise="portable-v1", seed=_SEED, size=self.experts,
            pool="nested",
        )  # fmt: skip
        resolved = (_resolved(descriptor, scale_map) for descriptor in drawn)
        return EnsembleDefinition(
            ModelSpec(name=self.model),
            base.digest,
            TaskIdentity("countdown", "countdown-v2", None, self.max_tokens),
            scale_map,
            self.experts,
            tuple(Expert(index, descriptor) for index, descriptor in enumerate(resolved)),
        )


def _resolved(descriptor: Descriptor, scale_map: ScaleMap) -> Descriptor:
    """Return a candidate of isotropic noise with its coefficients."""
    coefficient = torch.tensor(descriptor.radius, dtype=torch.float32)
    return descriptor.resolved((coefficient.item(),) * len(scale_map.active))


def run_server(asked: ServingPlan, ready: Path) -> None:
    """Serve until SIGINT; write the address to a file once requests are answered."""
    choose_numerics(Numerics.FAST)
    from modnorm.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - needs vLLM
    from modnorm.engines.vllm.start import Overrides  # noqa: PLC0415 - as above

    ensemble = ServedEnsemble(asked.ensemble(), asked.checkpoint(), asked.max_length)
    metrics = ServerMetrics()
    overrides = Overrides({"kv_cache_memory_bytes": int(asked.cache_gib * 2**30)})
    settings = EngineSettings(max_model_len=asked.max_length)
    answering = SwitchingAnswers(
        lambda: VllmEngine(ensemble.base, settings, overrides=overrides),
        ensemble.models, ensemble.task, metrics, ensemble.encoder,
    )  # fmt: skip
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
