"""An engine with or without drafts, in a process of its own."""

import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from vllm import RequestOutput, SamplingParams

from benchmarks.gpu_search.draft_messages import Answered, CandidateRequest, DraftSettings
from benchmarks.gpu_search.drawn_engine import DrawnEngine
from benchmarks.gpu_search.speaking_engine import SpeakingEngine
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import Completion, GenerationLimits
from modnorm.engines.settings import Drafts, EngineSettings, Numerics
from modnorm.engines.vllm.engine import VllmEngine
from modnorm.geometry.scale_map import ScaleMap
from modnorm.perturbation.descriptor import Descriptor

if TYPE_CHECKING:
    from collections.abc import Sequence


class RecordingEngine(SpeakingEngine):
    """Records the tokens of answers, and those of each step."""

    def __init__(self, settings: DraftSettings) -> None:
        chosen = EngineSettings(
            gpu_memory_utilization=settings.share,
            drafts=Drafts.POPULATION if settings.drafts else Drafts.NONE,
            numerics=Numerics.BATCH_INVARIANT if settings.invariant else Numerics.FAST,
        )
        self.tokens: dict[int, Sequence[int]] = {}
        self.accepted: Counter[int] = Counter()
        super().__init__(resolve_checkpoint(settings.model), chosen, settings.cache_bytes)
        self._count_tokens()

    def _count_tokens(self) -> None:
        core = self._engine.engine_core
        get = core.get_output

        def get_counted() -> object:
            outputs = get()
            self.accepted.update(len(one.new_token_ids) for one in outputs.outputs)
            return outputs

        core.get_output = get_counted

    def _completion(self, request: RequestOutput, index: int) -> Completion:
        self.tokens[index] = list(request.outputs[0].token_ids)
        return super()._completion(request, index)

    def _sampling(self, index: int, limits: GenerationLimits) -> SamplingParams:
        # Without given lengths, stop tokens end an answer.
        usual = DrawnEngine if self.lengths else VllmEngine
        return usual._sampling(self, index, limits)  # noqa: SLF001 - of a parent class

    def answer(self, asked: CandidateRequest) -> Answered:
        """Answer the prompts as a candidate."""
        self.lengths = asked.lengths
        if asked.spoken is not None:
            self.speak(asked.spoken)
        scale_map = ScaleMap.from_json(asked.scale_map)
        descriptor = Descriptor(
            "portable-v1", asked.seed, scale_map.method, asked.radius, scale_map.digest
        )
        self.misspoken = 0
        self.tokens.clear()
        self.accepted.clear()
        self.stopwatch.take()
        began = time.perf_counter()
        with self.candidate(descriptor, scale_map):
            for _ in self.generate(asked.prompts, GenerationLimits(asked.limit)):
                pass
        seconds = time.perf_counter() - began
        classes = self.stopwatch.take()
        return Answered(
            [self.tokens[index] for index in range(len(asked.prompts))],
            seconds,
            sum(steps for steps, _, _ in classes.values()),
            classes,
            dict(sorted(self.accepted.items())),
            self.misspoken if asked.spoken is not None else 0,
        )


def serve(connection: Connection, settings: DraftSettings) -> None:
    """Start; send the environment; answer candidates until None arrives."""
    began = time.perf_counter()
    engine = RecordingEngine(settings)
    environment = dict(engine.environment)
    connection.send({**environment, "start_seconds": f"{time.perf_counter() - began:.1f}"})
    while (asked := connection.recv()) is not None:
        if isinstance(asked, str):
            engine.load_texts(asked)
            connection.send("loaded")
        else:
            connection.send(engine.answer(asked))
    engine.close()
