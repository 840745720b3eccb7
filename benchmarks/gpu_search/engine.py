"""The project's engine, with the lengths of answers given: nothing of its loop is replaced."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind

from benchmarks.gpu_search.outcome import Stopwatch, watched
from benchmarks.gpu_search.variants import USUAL, VARIANTS, Variant
from modnorm.checkpoint.reference import Checkpoint
from modnorm.engines.protocol import Completion, GenerationLimits
from modnorm.engines.settings import EngineSettings
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.engines.vllm.start import Overrides


class DrawnEngine(VllmEngine):
    """Ends each answer at the length that was drawn for it; stop tokens do not.

    Args:
        checkpoint: The model.
        settings: As the project has them.
        variant: What is otherwise.
        cache_bytes: Bytes of keys and values; what vLLM finds when None.

    Attributes:
        lengths: Tokens of each answer of the next request.
        stopwatch: Times the steps.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: EngineSettings,
        variant: Variant = VARIANTS[USUAL],
        cache_bytes: int | None = None,
    ) -> None:
        cache = {} if cache_bytes is None else {"kv_cache_memory_bytes": cache_bytes}
        overrides = Overrides({**variant.arguments, **cache}, without=variant.without)
        super().__init__(checkpoint, settings, overrides=overrides)
        self.lengths: Sequence[int] = ()
        self.stopwatch = Stopwatch()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        limits: GenerationLimits,
        *,
        poll: Callable[[], None] | None = None,
    ) -> Generator[Completion]:
        """Answer as `VllmEngine` does, and time the steps."""
        timed = watched(self.stopwatch, lambda: len(self._waiting), poll)
        return super().generate(prompts, limits, poll=timed)

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Give the engine away; none of that is time of a step."""
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
