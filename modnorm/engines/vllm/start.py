"""Starts vLLM with the settings that candidates need."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from operator import attrgetter

import torch
from vllm.config import VllmConfig
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.executor import Executor

from modnorm.checkpoint.families import Layout
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import dtype_name
from modnorm.engines.protocol import Finish
from modnorm.engines.settings import STAGE, Drafts, EngineSettings
from modnorm.engines.vllm.internals.drafting import (
    NO_DRAFTS,
    draft_config,
    draft_schedule,
    graph_sizes,
    install_speculator,
    keep_compile_cache,
)
from modnorm.engines.vllm.internals.interfaces import BUSY, REQUIRED_SETTINGS
from modnorm.engines.vllm.internals.layers import keep_plain_weights
from modnorm.engines.vllm.internals.message_queues import fix_queues
from modnorm.engines.vllm.internals.register import check_stage
from modnorm.engines.vllm.internals.register_entry import Stage
from modnorm.engines.vllm.internals.worker_start import fork_workers, worker_errors_raised
from modnorm.engines.vllm.memory import EngineSizes, cpu_sizes, gpu_sizes
from modnorm.engines.vllm.numerics import choose_numerics, require_offered
from modnorm.errors import DoesNotFitError, EngineError, IncompatibleError, ModnormError

WORKER = "modnorm.engines.vllm.rank_model.CandidateWorker"

_CACHE_TOO_SMALL = re.compile(r"cache blocks|KV cache", re.IGNORECASE)
"""Text of vLLM's message if its share has no room for keys and values."""


def start_vllm(
    checkpoint: Checkpoint, layout: Layout, dtype: torch.dtype, settings: EngineSettings
) -> LLMEngine:
    """Load a model into vLLM, in this process or in worker processes below it.

    The scheduler runs in this process. The requests alone then determine its steps, and so the
    sequences that share a batch.
    """
    choose_numerics(settings.numerics)
    require_offered(settings.numerics)
    keep_plain_weights()
    fix_queues()
    if settings.drafts is Drafts.POPULATION:
        install_speculator()
    fork_workers()
    check_stage(Stage.PROCESS)
    with vllm_failures(f"loading {checkpoint.name} into vLLM"):
        arguments = engine_arguments(checkpoint, layout, dtype, settings)
        _require_known(arguments)
        # `LLM` uses this context too: it raises the tokens of a step for batches of prompts.
        config = EngineArgs(**arguments).create_engine_config(UsageContext.LLM_CLASS)
        check_stage(Stage.CONFIG, config)
        _require_settings(config)
        _require_drafts(config, settings.drafts)
        keep_compile_cache(config)
        with worker_errors_raised(), _executor_of(config) as executor:
            engine = LLMEngine(
                config, executor_class=executor, log_stats=False, multiprocess_mode=False
            )
            check_stage(Stage.ENGINE, engine)
            STAGE.enter("copying the weights")
    return engine


@contextmanager
def _executor_of(config: VllmConfig) -> Iterator[type]:
    """Yield the executor's class; if the start fails, shut its workers down.

    vLLM does not: the workers would keep their GPU memory as long as this process lives.
    """
    executors: list[Executor] = []

    class Recorded(Executor.get_class(config)):  # type: ignore[misc]  # a class of run time
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)
            executors.append(self)

        def determine_available_memory(self) -> list[int]:
            STAGE.enter("compiling and measuring memory")
            return super().determine_available_memory()  # type: ignore[no-any-return]

        def initialize_from_config(self, *arguments: object) -> object:
            STAGE.enter("capturing graphs")
            return super().initialize_from_config(*arguments)

    try:
        yield Recorded
    except BaseException:
        for executor in executors:
            executor.shutdown()
        cleanup_dist_env_and_memory()
        raise


def recorded_settings(engine: LLMEngine) -> dict[str, str]:
    """Return the settings of a running vLLM that rounding may depend on."""
    config = engine.vllm_config
    mode = config.compilation_config.cudagraph_mode
    return {
        "sequences": str(config.scheduler_config.max_num_seqs),
        # vLLM splits prompts at this number.
        "step_tokens": str(config.scheduler_config.max_num_batched_tokens),
        "graphs": str(getattr(mode, "name", mode)),
        "steps_in_flight": str(engine.engine_core.engine_core.batch_queue_size),
        "drafts": _recorded_drafts(config),
    }


def _recorded_drafts(config: VllmConfig) -> str:
    """Return the source of drafts, and their tokens for the fewest to the most sequences."""
    drafts = config.speculative_config
    if drafts is None:
        return str(Drafts.NONE)
    schedule = drafts.num_speculative_tokens_per_batch_size
    sizes = [step[2] for step in schedule] if schedule else [drafts.num_speculative_tokens]
    return f"{Drafts.POPULATION} {'/'.join(map(str, sizes))}"


@contextmanager
def vllm_failures(action: str, engine: LLMEngine | None = None) -> Iterator[None]:
    """Convert vLLM's exceptions inside the context to errors of this project."""
    try:
        yield
    except ModnormError:
        raise
    except ValueError as error:  # settings and sizes that vLLM refuses; pydantic's error is one
        if BUSY in str(error):
            raise EngineError(f"{action} failed: {error}") from error
        refusal = DoesNotFitError if _CACHE_TOO_SMALL.search(str(error)) else IncompatibleError
        raise refusal(
            f"{action} failed: {error}",
            field="engine",
            remedy="change the engine's settings (max_model_len and max_num_seqs take the cache), "
            "or use the transformers engine",
        ) from error
    except Exception as error:  # vLLM's own errors have no common base
        # If its worker has died, vLLM raises many errors; none names the cause.
        if engine and getattr(engine.model_executor, "is_failed", False):
            raise EngineError(
                f"{action} failed: a worker process of vLLM has died",
                remedy="read its log, or the kernel's log if memory ran out",
            ) from error
        raise EngineError(f"{action} failed: {type(error).__name__}: {error}") from error


def finish_of(reason: str | None) -> Finish:
    """Return why vLLM ended a completion."""
    try:
        return Finish(str(reason))  # vLLM has the same names
    except ValueError:
        raise EngineError(f"vLLM ended a request before its answer: {reason}") from None


def engine_arguments(
    checkpoint: Checkpoint, layout: Layout, dtype: torch.dtype, settings: EngineSettings
) -> dict[str, object]:
    sizes = engine_sizes(checkpoint, layout, dtype, settings)
    arguments: dict[str, object] = {
        "model": str(checkpoint.directory),
        "skip_tokenizer_init": True,
        "dtype": dtype_name(dtype),
        "seed": 0,
        "max_model_len": _longest(checkpoint, settings),
        "max_num_seqs": sizes.sequences,
        "max_num_batched_tokens": sizes.step_tokens,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "enable_prefix_caching": False,
        "worker_extension_cls": WORKER,
        "generation_config": "vllm",
        "config_format": "hf",
        "load_format": "safetensors",
        "disable_log_stats": True,
        "trust_remote_code": False,
        "kv_cache_memory_bytes": sizes.cache,
    }
    drafts = settings.drafts is Drafts.POPULATION
    parameters = sum(tensor.numel for tensor in layout) // settings.tensor_parallel_size
    if drafts:
        arguments["speculative_config"] = draft_config(parameters)
    if sizes.share is None:
        return arguments | {"enforce_eager": True}
    schedule = draft_schedule(parameters) if drafts else NO_DRAFTS
    return arguments | {
        "cudagraph_capture_sizes": graph_sizes(schedule, sizes.sequences),
        "distributed_executor_backend": "mp" if settings.has_worker_processes else "uni",
        "gpu_memory_utilization": sizes.share,
    }


def engine_sizes(
    checkpoint: Checkpoint, layout: Layout, dtype: torch.dtype, settings: EngineSettings
) -> EngineSizes:
    """Return the numbers of sequences and the memory of an engine on this machine."""
    config, windows = checkpoint.config, _has_windows(checkpoint)
    if current_platform.is_cpu():
        length = _longest(checkpoint, settings)
        return cpu_sizes(config, dtype, settings, length=length, windows=windows)
    total = int(current_platform.get_device_total_memory())
    return gpu_sizes(config, layout, dtype, settings, total=total, windows=windows)


def _longest(checkpoint: Checkpoint, settings: EngineSettings) -> int:
    """Return the tokens of the longest sequence."""
    return min(settings.max_model_len or checkpoint.max_position, checkpoint.max_position)


def _has_windows(checkpoint: Checkpoint) -> bool:
    """Whether some layers attend to the last tokens only; Qwen2 may name an unused window."""
    config = checkpoint.config
    return bool(config.get("sliding_window")) and config.get("use_sliding_window") is not False


def _require_known(arguments: Mapping[str, object]) -> None:
    known = {argument.name for argument in fields(EngineArgs)}
    if unknown := sorted(set(arguments) - known):
        raise IncompatibleError(
            f"this vLLM has no setting {unknown[0]}",
            field="engine.name",
            remedy="use a version of vLLM that this package was tested with",
        )


def _require_settings(config: VllmConfig) -> None:
    """Refuse settings that a plug-in or an environment variable has changed."""
    for path, expected in REQUIRED_SETTINGS.items():
        _require_setting(path, attrgetter(path)(config), expected)


def _require_drafts(config: VllmConfig, drafts: Drafts) -> None:
    """Refuse drafts that a plug-in has added or removed."""
    actual = Drafts.NONE if config.speculative_config is None else Drafts.POPULATION
    _require_setting("speculative_config", actual, drafts)


def _require_setting(path: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise IncompatibleError(
            f"vLLM has set {path} to {actual!r}, it must be {expected!r}",
            field="engine.name",
            remedy="remove plug-ins of vLLM and VLLM_ variables that change it",
        )
