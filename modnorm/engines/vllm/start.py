"""Starting vLLM with exactly the settings that candidates need."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Protocol, cast

import torch
from vllm.config import VllmConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from modnorm.checkpoint.families import Dimensions
from modnorm.checkpoint.layout import Layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.ahead import run_ahead
from modnorm.engines.vllm.faults import told_faults
from modnorm.engines.vllm.memory import cpu_cache_bytes, parked_sequences, vllm_share
from modnorm.engines.vllm.numerics import choose_numerics, require_offered
from modnorm.engines.vllm.queues import mend_queues
from modnorm.errors import DoesNotFitError, EngineError, IncompatibleError, ModnormError

WORKER = "modnorm.engines.vllm.worker.CandidateWorker"
_REQUIRED: Mapping[str, object] = MappingProxyType(
    {
        "cache_config.enable_prefix_caching": False,
        "model_config.quantization": None,
        "model_config.use_mla": False,
        "speculative_config": None,
        "parallel_config.pipeline_parallel_size": 1,
    }
)
"""Keys and values of a prefix would be those of the base; the others are not understood here."""

_WINDOWED_STEP_TOKENS = 2048
"""Prompt tokens of a step where layers have windows: vLLM sets cache aside for as many in each of
those layers, and for each step that is under way."""

_BUSY = "Free memory on device"
"""What vLLM says when others hold the memory that it is to take; so in 0.26 to 0.33."""
_SMALL = re.compile(r"cache blocks|KV cache", re.IGNORECASE)
"""What it says when its share has no room for keys and values."""


class Output(Protocol):
    """A completion."""

    token_ids: list[int]
    finish_reason: str | None


class Request(Protocol):
    """What vLLM says of a request."""

    request_id: str
    finished: bool
    outputs: list[Output]


class EngineCore(Protocol):
    """vLLM's core."""

    def shutdown(self) -> None:
        """End the workers and free their memory."""


class ModelExecutor(Protocol):
    """What calls vLLM's workers."""

    def collective_rpc(self, method: str, *, non_block: bool) -> Future[list[object]]:
        """Call a method of every worker; their answers by rank come after all asked for before."""

    def shutdown(self) -> None:
        """End the workers."""


class RunningEngine(Protocol):
    """What is used of vLLM's engine."""

    engine_core: EngineCore
    model_executor: ModelExecutor
    vllm_config: object

    def add_request(self, request_id: str, prompt: object, params: object) -> object:
        """Queue a prompt."""

    def abort_request(self, request_ids: list[str]) -> None:
        """Drop requests."""

    def step(self) -> list[Request]:
        """Run the model once; return the requests that went on."""

    def has_unfinished_requests(self) -> bool:
        """Whether any request waits or runs."""

    def collective_rpc(self, method: str, args: tuple[object, ...]) -> list[object]:
        """Call a method of every worker; return their answers by rank."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a measurement has otherwise; what candidates need must hold all the same."""

    arguments: Mapping[str, object] = field(default_factory=dict)
    """Engine arguments of vLLM's."""
    ahead: bool = True
    """Whether steps run ahead as in `run_ahead`."""
    at_block_ends: bool = True
    """Whether blocks are asked for as in `ask_at_block_ends`."""


def start_vllm(
    checkpoint: Checkpoint,
    layout: Layout,
    dtype: torch.dtype,
    settings: EngineSettings,
    changes: Changes,
) -> RunningEngine:
    """Load a model into vLLM, in this process or, over several GPUs, in workers below it.

    The scheduler runs in this process: its steps, and so what shares a batch, then follow from
    the requests alone.

    Args:
        checkpoint: The model.
        layout: All of its physical tensors.
        dtype: Dtype of the weights.
        settings: Memory, length, GPUs.
        changes: What is otherwise.

    Raises:
        IncompatibleError: vLLM cannot hold the model, or not as candidates need it.
        EngineError: the infrastructure failed.
    """
    choose_numerics(settings.numerics)
    require_offered(settings.numerics)
    mend_queues()
    # Workers are forked otherwise, from a process with threads; vLLM reads it nowhere else.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # noqa: TID251 - its only way in
    with vllm_failures(f"loading {checkpoint.name} into vLLM"):
        usual = engine_arguments(checkpoint, layout, dtype, settings)
        arguments = {**usual, **changes.arguments}
        _require_known(arguments)
        # As `LLM` has it: for whole batches of prompts a step takes more tokens.
        config = EngineArgs(**arguments).create_engine_config(UsageContext.LLM_CLASS)
        _require_settings(config)
        if changes.ahead:
            run_ahead(config)
        with told_faults(), _executor_of(config) as executor:
            engine = LLMEngine(
                config, executor_class=executor, log_stats=False, multiprocess_mode=False
            )
    return cast("RunningEngine", engine)


@contextmanager
def _executor_of(config: VllmConfig) -> Iterator[type]:
    """Yield the class of what starts workers; they end where the start fails, which vLLM forgets.

    They would keep their processes, and those the GPU's memory, as long as this process.
    """
    made: list[ModelExecutor] = []

    class Kept(Executor.get_class(config)):  # type: ignore[misc]  # known by now alone
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)
            made.append(self)

    try:
        yield Kept
    except BaseException:
        for one in made:
            one.shutdown()
        cleanup_dist_env_and_memory()
        raise


def rendered(engine: RunningEngine, prompts: Sequence[Sequence[int]]) -> list[object]:
    """Return prompts as this vLLM takes them: through its renderer, where it has one for that."""
    raw: list[object] = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    render = getattr(getattr(engine, "renderer", None), "render_cmpl", None)
    return list(render(raw)) if render else raw


def step_tokens(engine: RunningEngine) -> int:
    """Return how many tokens vLLM takes in one step at most: prompts are cut there."""
    return int(str(_setting(engine.vllm_config, "scheduler_config.max_num_batched_tokens")))


def steps_under_way(engine: RunningEngine) -> int:
    """Return how many steps are planned before the first of them has ended."""
    inner = getattr(engine.engine_core, "engine_core", None)
    return int(getattr(inner, "batch_queue_size", 1))


def graph_mode(engine: RunningEngine) -> str:
    """Return which CUDA graphs a running engine uses, `NONE` for none, as vLLM calls them."""
    mode = _setting(engine.vllm_config, "compilation_config.cudagraph_mode")
    return str(getattr(mode, "name", mode))


@contextmanager
def vllm_failures(what: str, engine: RunningEngine | None = None) -> Iterator[None]:
    """Turn whatever vLLM raises into this project's errors.

    Args:
        what: What was being done, for the message.
        engine: What was doing it; None while there is none yet.

    Raises:
        DoesNotFitError: its share of the memory is too small.
        IncompatibleError: vLLM refuses the model for another reason.
        EngineError: anything else failed.
    """
    try:
        yield
    except ModnormError:
        raise
    except ValueError as error:  # settings and sizes that vLLM refuses; pydantic's error is one
        if _BUSY in str(error):
            raise EngineError(f"{what} failed: {error}") from error
        refusal = DoesNotFitError if _SMALL.search(str(error)) else IncompatibleError
        raise refusal(
            f"{what} failed: {error}",
            field="engine",
            remedy="change the engine's settings (max_model_len and max_num_seqs take the cache), "
            "or use the transformers engine",
        ) from error
    except Exception as error:  # vLLM's own errors have no common base
        # It says all sorts of things then, none of them that.
        if engine and getattr(engine.model_executor, "is_failed", False):
            raise EngineError(
                f"{what} failed: a worker process of vLLM's has ended",
                remedy="its log says why, or the kernel's where memory ran out",
            ) from error
        raise EngineError(f"{what} failed: {type(error).__name__}: {error}") from error


def engine_arguments(
    checkpoint: Checkpoint, layout: Layout, dtype: torch.dtype, settings: EngineSettings
) -> dict[str, object]:
    """Return what vLLM is started with.

    Raises:
        IncompatibleError: the model does not fit.
    """
    length = min(settings.max_model_len or checkpoint.max_position, checkpoint.max_position)
    ranks = settings.tensor_parallel_size
    on_gpu = not current_platform.is_cpu()
    places = settings.max_num_seqs + (parked_places(checkpoint, settings) if on_gpu else 0)
    arguments: dict[str, object] = {
        "model": str(checkpoint.directory),
        "skip_tokenizer_init": True,
        "dtype": str(dtype).removeprefix("torch."),
        "seed": 0,
        "max_model_len": length,
        "max_num_seqs": places,
        "tensor_parallel_size": ranks,
        "enable_prefix_caching": False,
        "enforce_eager": not on_gpu,
        "worker_extension_cls": WORKER,
        "generation_config": "vllm",
        "load_format": "safetensors",
        "disable_log_stats": True,
        "trust_remote_code": False,
    }
    if _has_windows(checkpoint):
        # vLLM refuses more places than tokens.
        arguments["max_num_batched_tokens"] = max(_WINDOWED_STEP_TOKENS, places)
    if on_gpu:
        apart = settings.worker_process or ranks > 1
        arguments["distributed_executor_backend"] = "mp" if apart else "uni"
        total = int(current_platform.get_device_total_memory())
        arguments["gpu_memory_utilization"] = vllm_share(
            layout, dtype, total=total, utilization=settings.gpu_memory_utilization, ranks=ranks
        )
    else:
        arguments["kv_cache_memory_bytes"] = cpu_cache_bytes(
            checkpoint.config, dtype, length=length, sequences=settings.max_num_seqs
        )
    return arguments


def _has_windows(checkpoint: Checkpoint) -> bool:
    """Whether some layers see a window of the tokens before; Qwen2 names one that it has not."""
    config = checkpoint.config
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False


def parked_places(checkpoint: Checkpoint, settings: EngineSettings) -> int:
    """Return for how many sequences there is a place, beside those that are decoded at once.

    On a GPU vLLM has to know of them; its model runner for the CPU keeps no place for what rests.
    """
    if current_platform.is_cpu():
        return settings.max_parked_seqs
    total = int(current_platform.get_device_total_memory() * settings.gpu_memory_utilization)
    vocabulary = Dimensions.from_config(checkpoint.config).vocabulary
    return parked_sequences(vocabulary, settings.max_parked_seqs, total=total)


def _require_known(arguments: Mapping[str, object]) -> None:
    known = {one.name for one in fields(EngineArgs)}
    if unknown := sorted(set(arguments) - known):
        raise IncompatibleError(
            f"this vLLM has no setting {unknown[0]}",
            field="engine.name",
            remedy="use a version of vLLM that this package was tested with",
        )


def _require_settings(config: object) -> None:
    """See that nothing (a plug-in, an environment variable) has changed what must hold."""
    for path, expected in _REQUIRED.items():
        found = _setting(config, path)
        if found != expected:
            raise IncompatibleError(
                f"vLLM has set {path} to {found!r}, it must be {expected!r}",
                field="engine.name",
                remedy="look for plug-ins of vLLM and VLLM_ variables in the environment",
            )


def _setting(config: object, path: str) -> object:
    for name in path.split("."):
        config = getattr(config, name)
    return config
