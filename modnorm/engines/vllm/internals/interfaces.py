"""Undocumented names of vLLM that modnorm calls without changing them."""

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor
from vllm.v1.worker.utils import request_memory

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage
from modnorm.engines.vllm.numerics import VARIABLE, is_invariant

REQUIRED_SETTINGS: Mapping[str, object] = MappingProxyType(
    {
        "cache_config.enable_prefix_caching": False,
        "model_config.quantization": None,
        "model_config.use_mla": False,
        "parallel_config.pipeline_parallel_size": 1,
    }
)
"""A cached prefix would have the base's keys and values. The other features are not supported."""
BUSY = "Free memory on device"
"""Text of vLLM's message if other processes hold the memory that it needs."""


def _is_executor(config: VllmConfig) -> bool:
    """The executor's class is a subclass of `Executor`."""
    return issubclass(Executor.get_class(config), Executor)


def _is_busy(_: object) -> bool:
    """The memory check fails on a full device with the expected text."""
    snapshot = SimpleNamespace(total_memory=100, free_memory=0, device_="probe")
    try:
        request_memory(snapshot, SimpleNamespace(gpu_memory_utilization=1.0))
    except ValueError as error:
        return BUSY in str(error)
    return False


def _has_worker_process(engine: LLMEngine) -> bool:
    return bool(engine.vllm_config.parallel_config.distributed_executor_backend == "mp")


def _is_alive(engine: LLMEngine) -> bool:
    """A new engine's executor has not failed."""
    return engine.model_executor.is_failed is False


def _renders(engine: LLMEngine) -> bool:
    """A rendered prompt has the tokens of the raw prompt."""
    (rendered,) = engine.renderer.render_cmpl([{"prompt_token_ids": [0, 1]}])
    return list(rendered["prompt_token_ids"]) == [0, 1]


def _answers_later(engine: LLMEngine) -> bool:
    """A non-blocking call returns the same answers as a blocking call."""
    pending = engine.model_executor.collective_rpc("check_health", non_block=True)
    return bool(pending.result() == engine.collective_rpc("check_health"))


def _holds_model(worker: Any) -> bool:  # noqa: ANN401 - vLLM's worker, extended
    """The worker holds a model with parameters, and its caches are tensors."""
    caches = worker.model_runner.kv_caches
    tensors = all(isinstance(cache, torch.Tensor) for cache in caches)
    return bool(caches) and tensors and any(True for _ in worker.get_model().parameters())


INTERFACES = (
    RegisterEntry(
        name="pending_calls",
        purpose="Checks of the logits during generation do not wait for the workers' answers.",
        stage=Stage.ENGINE,
        vllm_names=(".model_executor.collective_rpc",),
        removable_when="`LLMEngine.collective_rpc` takes `non_block`",
        self_test=_answers_later,
    ),
    RegisterEntry(
        name="settings",
        purpose="Refuses plug-ins and variables that change settings which candidates need.",
        stage=Stage.CONFIG,
        vllm_names=(
            *(f".{path}" for path in REQUIRED_SETTINGS),
            ".speculative_config",
            ".scheduler_config.max_num_batched_tokens",
            ".scheduler_config.max_num_seqs",
            ".compilation_config.cudagraph_mode",
        ),
        removable_when="never: it protects each start",
    ),
    RegisterEntry(
        name="executor",
        purpose="Ends the workers of a failed start, which vLLM leaves running.",
        stage=Stage.CONFIG,
        vllm_names=("vllm.v1.executor:Executor.get_class", "vllm.v1.executor:Executor.shutdown"),
        removable_when="vLLM ends the workers of a failed start",
        self_test=_is_executor,
    ),
    RegisterEntry(
        name="batch_invariance",
        purpose="Sets a variable for `numerics: batch_invariant` before vLLM is imported.",
        stage=Stage.PROCESS,
        vllm_names=(f"vllm.envs:{VARIABLE}",),
        remedy="use `numerics: fast`",
        removable_when="batch invariance is an engine argument",
        self_test=is_invariant,
        applies=is_invariant,
    ),
    RegisterEntry(
        name="memory_error",
        purpose="Retries if other processes hold the memory, instead of refusing the model.",
        stage=Stage.PROCESS,
        vllm_names=("vllm.v1.worker.utils:request_memory",),
        removable_when="vLLM raises an error class of its own",
        self_test=_is_busy,
    ),
    RegisterEntry(
        name="worker_death",
        purpose="Names a dead worker process as the cause of later errors.",
        stage=Stage.ENGINE,
        vllm_names=(".model_executor.is_failed",),
        removable_when="vLLM's executor raises an error class of its own",
        self_test=_is_alive,
        applies=_has_worker_process,
    ),
    RegisterEntry(
        name="renderer",
        purpose="Renders prompts as `LLM` does; raw prompts are deprecated.",
        stage=Stage.ENGINE,
        vllm_names=(".renderer.render_cmpl",),
        removable_when="`LLMEngine.add_request` takes token ids",
        self_test=_renders,
    ),
    RegisterEntry(
        name="worker_state",
        purpose="Writes candidates into the worker's model and clears its caches of NaN.",
        stage=Stage.WORKER,
        vllm_names=(".get_model", ".model_config.model", ".model_runner.kv_caches"),
        removable_when="vLLM gives worker extensions the model and its caches",
        self_test=_holds_model,
    ),
)
