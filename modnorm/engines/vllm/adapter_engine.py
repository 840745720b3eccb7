"""One base and its adapters in vLLM's asynchronous engine: requests of all adapters share steps.

The adapters are low-rank candidates in PEFT's format. vLLM adds their products at run time, where
`VllmEngine` writes merged and rounded weights. So answers can differ (docs/serve.md).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from threading import Thread

from vllm import RequestOutput, SamplingParams, envs
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from modnorm.checkpoint.answer_stream import AnswerStream
from modnorm.checkpoint.checkpoint_files import require_unchanged
from modnorm.checkpoint.prompts import PromptEncoder
from modnorm.checkpoint.reference import Checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.engines.protocol import Completion, GenerationLimits
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.internals.interfaces import START_METHOD
from modnorm.engines.vllm.memory import cpu_cache_bytes
from modnorm.engines.vllm.socket_folder import use_socket_folder
from modnorm.engines.vllm.start import Overrides, finish_of, vllm_failures
from modnorm.errors import PreconditionError

_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
"""vLLM's variable of its second model runner; vLLM 0.26 did not start it with 16 adapters."""
_NO_OVERRIDES = Overrides()


class AdapterEngine:
    """A base and its adapters in vLLM; used by one event loop.

    Args:
        checkpoint: The base.
        rank: Largest rank of an adapter, one of vLLM's; None for the base alone.
        adapters: Number of adapters.
        settings: Settings of the engine.
        overrides: Engine arguments for measurements.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        rank: int | None,
        adapters: int,
        settings: EngineSettings,
        *,
        overrides: Overrides = _NO_OVERRIDES,
    ) -> None:
        self._checkpoint = checkpoint
        self._encoder = PromptEncoder(checkpoint)
        self._arguments = {
            **engine_arguments(checkpoint, settings),
            **({} if rank is None else _adapter_arguments(rank, adapters)),
            **overrides.arguments,
        }
        self._llm: AsyncLLM | None = None
        self._loading: Thread | None = None
        self._adapters: dict[int, LoRARequest] = {}
        self._requests = 0
        self._is_stopped = False

    async def start(self) -> None:
        """Load the base.

        Raises:
            IncompatibleError: vLLM cannot run the model with adapters.
            PreconditionError: the model's files were replaced since it was inspected.
            EngineError: the infrastructure failed.
        """
        _prepare_process()
        with vllm_failures(f"loading {self._checkpoint.name} into vLLM"):
            # In a thread, so that a server answers its probes while it loads an engine again.
            loaded = Future[None]()
            loaded.set_running_or_notify_cancel()  # a cancelled start must not cancel it
            self._loading = Thread(target=self._load, args=(loaded,), daemon=True)
            self._loading.start()
            await asyncio.wrap_future(loaded)
        require_unchanged(self._checkpoint.directory, self._checkpoint.digest)

    def _load(self, loaded: Future[None]) -> None:
        arguments = AsyncEngineArgs(**self._arguments)
        try:
            self._llm = AsyncLLM.from_engine_args(
                arguments, usage_context=UsageContext.ENGINE_CONTEXT
            )
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    async def add(self, adapter: int, folder: Path) -> None:
        """Load an adapter in PEFT's format; the folder is not read again.

        Args:
            adapter: Number of the adapter, from 1.
            folder: Its files.

        Raises:
            EngineError: it cannot be loaded.
        """
        request = LoRARequest(f"adapter-{adapter}", adapter, str(folder))
        with vllm_failures(f"loading adapter {adapter} into vLLM"):
            await self._running.add_lora(request)
        self._adapters[adapter] = request

    def stop(self) -> None:
        """Free the model, without waiting for its load; requests in progress fail."""
        self._is_stopped = True
        if self._llm is not None:
            self._llm.shutdown()
            self._llm = None

    @property
    def is_loading(self) -> bool:
        """Whether a thread loads the base; only the end of the process interrupts it."""
        return self._loading is not None and self._loading.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether vLLM works, or has not been started."""
        return not self._is_stopped and (self._llm is None or not self._llm.errored)

    async def generate(
        self,
        adapter: int | None,
        prompt: Sequence[int],
        limits: GenerationLimits,
        *,
        streams: bool,
    ) -> AsyncGenerator[str | Completion]:
        """Yield pieces of the text if it streams, then the completion; closing it aborts.

        Args:
            adapter: Number of the adapter; None for the base.
            prompt: Token ids.
            limits: Bounds of the completion.
            streams: Whether to yield pieces.

        Raises:
            EngineError: the infrastructure failed.
        """
        text, tokens, reason = AnswerStream(self._encoder), list[int](), None
        with vllm_failures("generation"):
            async with aclosing(self._outputs(adapter, prompt, limits, streams)) as outputs:
                async for output in outputs:
                    (part,) = output.outputs
                    tokens += part.token_ids
                    reason = part.finish_reason
                    if streams and (piece := text.add(part.token_ids)):
                        yield piece
        if streams and (piece := text.end()):
            yield piece
        yield Completion(0, self._encoder.answer(tokens), len(tokens), finish_of(reason))

    async def _outputs(
        self,
        adapter: int | None,
        prompt: Sequence[int],
        limits: GenerationLimits,
        streams: bool,  # noqa: FBT001 - as in `generate`
    ) -> AsyncGenerator[RequestOutput]:
        """Yield vLLM's outputs of one request: one with all tokens, or some with new ones."""
        llm = self._running
        (rendered,) = llm.renderer.render_cmpl([{"prompt_token_ids": list(prompt)}])
        self._requests += 1
        outputs = llm.generate(
            rendered,
            self._sampling(limits, streams=streams),
            str(self._requests),
            lora_request=None if adapter is None else self._adapters[adapter],
        )
        async with aclosing(outputs):
            async for output in outputs:
                yield output

    def _sampling(self, limits: GenerationLimits, *, streams: bool) -> SamplingParams:
        return SamplingParams(
            temperature=0.0,
            max_tokens=limits.max_tokens,
            stop_token_ids=sorted(self._encoder.stop_ids),
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if streams else RequestOutputKind.FINAL_ONLY,
        )

    @property
    def _running(self) -> AsyncLLM:
        if self._llm is None:
            raise PreconditionError("the engine has not been started")
        return self._llm


def engine_arguments(checkpoint: Checkpoint, settings: EngineSettings) -> dict[str, object]:
    """Return vLLM's engine arguments for the base alone."""
    dtype = CheckpointWeights(checkpoint).dtype
    length = min(settings.max_model_len or checkpoint.max_position, checkpoint.max_position)
    arguments: dict[str, object] = {
        "model": str(checkpoint.directory),
        "skip_tokenizer_init": True,
        "dtype": str(dtype).removeprefix("torch."),
        "seed": 0,
        "max_model_len": length,
        "max_num_seqs": settings.max_num_seqs,
        "generation_config": "vllm",
        "config_format": "hf",
        "load_format": "safetensors",
        "disable_log_stats": True,
        "enable_log_requests": False,
        "trust_remote_code": False,
    }
    if not current_platform.is_cpu():
        return arguments | {"gpu_memory_utilization": settings.gpu_memory_utilization}
    cache = cpu_cache_bytes(
        checkpoint.config, dtype, length=length, sequences=settings.max_num_seqs
    )
    return arguments | {"enforce_eager": True, "kv_cache_memory_bytes": cache}


def _adapter_arguments(rank: int, adapters: int) -> dict[str, object]:
    """Return the arguments by which all adapters stay loaded and share a batch."""
    return {
        "enable_lora": True,
        "max_loras": adapters,
        "max_cpu_loras": adapters,
        "max_lora_rank": rank,
    }


def _prepare_process() -> None:
    """Set the variables that vLLM's process inherits; vLLM has no settings for them."""
    use_socket_folder()
    os.environ.setdefault(START_METHOD, "spawn")  # noqa: TID251 - see above
    if _RUNNER in envs.environment_variables:
        os.environ.setdefault(_RUNNER, "0")  # noqa: TID251 - see above
