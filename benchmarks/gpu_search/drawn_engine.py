"""The project's engine with given lengths of answers and an unchanged loop."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from benchmarks.gpu_search.candidate_outcome import Stopwatch, watched
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, GenerationLimits, OnTokens
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.start import Overrides


class DrawnEngine(VllmEngine):
    """Ends each answer at its drawn length and ignores stop tokens.

    Args:
        checkpoint: The model.
        settings: Settings of the engine.
        cache_bytes: Bytes of keys and values; None lets vLLM choose.
        arguments: More engine arguments of vLLM.

    Attributes:
        lengths: Tokens of each answer of the next request.
        stopwatch: Times the steps.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        cache_bytes: int | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> None:
        cache = {} if cache_bytes is None else {"kv_cache_memory_bytes": cache_bytes}
        changes = {**cache, **(arguments or {})}
        super().__init__(checkpoint, settings, overrides=Overrides(changes))
        self.lengths: Sequence[int] = ()
        self.stopwatch = Stopwatch()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
        on_tokens: OnTokens | None = None,
    ) -> Generator[Completion]:
        """Answer like `VllmEngine`, and time the steps."""
        timed = watched(self.stopwatch, lambda: len(self._waiting), poll)
        return super().generate(prompts, limits, poll=timed, on_tokens=on_tokens)

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Park the request; the time inside the context counts for no step."""
        self.stopwatch.finish()
        with super().parked():
            yield

    def _sampling(self, index: int, limits: GenerationLimits) -> SamplingParams:
        length = min(self.lengths[index], limits.max_tokens)
        return SamplingParams(
            temperature=0.0,
            max_tokens=length,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
