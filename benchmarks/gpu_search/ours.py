"""One engine of this project as a contender: the library's scoring of one candidate."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of, seeds_of
from benchmarks.gpu_search.engine import DrawnEngine
from benchmarks.gpu_search.messages import WARM_UP, News, Settings, Turn
from benchmarks.gpu_search.outcome import Outcome
from benchmarks.gpu_search.variants import VARIANTS
from benchmarks.gpu_search.workload import DrawnTask
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.settings import EngineSettings
from modnorm.search.ranking import mean_reward
from modnorm.search.scoring import answer_candidate
from modnorm.search.stopping import Bar, EarlyStop

JUDGES = 2


class Contender:
    """An engine and all that candidates are scored with."""

    def __init__(self, settings: Settings) -> None:
        checkpoint = resolve_checkpoint(settings.model)
        self.engine = DrawnEngine(
            checkpoint,
            EngineSettings(gpu_memory_utilization=settings.share),
            VARIANTS[settings.variant],
        )
        self._workload = settings.workload
        self._prompts = settings.workload.prompts()
        self._scale_map = scale_map_of(checkpoint)
        self._seeds = seeds_of(settings.population)
        self._judges = ThreadPoolExecutor(JUDGES)

    def warm_up(self) -> None:
        """Evaluate a candidate with short answers: kernels are compiled, buffers taken."""
        usual, self._workload = self._workload, self._workload.shortened(WARM_UP)
        self.evaluate(0, None)
        self._workload = usual

    def evaluate(self, candidate: int, bar: Callable[[], Bar | None] | None) -> Outcome:
        """Score a candidate, or stop it.

        Args:
            candidate: Its index.
            bar: Returns what it must still be able to pass; None where nothing is stopped.
        """
        answers = self._workload.answers(candidate)
        self.engine.lengths = answers.lengths
        self.engine.stopwatch.take()
        task = DrawnTask(self._workload.cap)
        began = time.perf_counter()
        result = answer_candidate(
            self.engine,
            task,
            self._workload.table(candidate),
            self._prompts,
            descriptor_of(self._scale_map, self._seeds[candidate]),
            self._scale_map,
            GenerationLimits(self._workload.cap),
            judges=self._judges,
            on_progress=_go_on,
            stop=EarlyStop(candidate, task.reward_bounds, bar) if bar else None,
        ).judged()
        return Outcome(
            candidate=candidate,
            score=None if result.stopped else mean_reward([one.reward for one in result.answers]),
            began=began,
            ended=time.perf_counter(),
            switch=result.switch_seconds,
            generate=result.generate_seconds,
            judge=result.score_seconds,
            classes=self.engine.stopwatch.take(),
        )

    def close(self) -> None:
        """Free the model."""
        self._judges.shutdown()
        self.engine.close()


def serve(connection: Connection, settings: Settings) -> None:
    """Start when told to, say when ready, then evaluate candidates until told None."""
    if connection.recv() is None:
        return
    contender = Contender(settings)
    contender.warm_up()
    connection.send(dict(contender.engine.environment))
    bar: Bar | None = None

    def latest() -> Bar | None:
        nonlocal bar
        while connection.poll():
            if not isinstance(message := connection.recv(), News):
                raise TypeError(f"{message} in the middle of a candidate")
            bar = message.bar
        return bar

    while (message := connection.recv()) is not None:
        if isinstance(message, Turn):
            bar = message.bar
            look = latest if message.stops else None
            connection.send(contender.evaluate(message.candidate, look))
    contender.close()


def _go_on(_: int) -> None:
    """Let the work go on."""
