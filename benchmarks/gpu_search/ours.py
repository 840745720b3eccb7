"""One engine of this project as a contender: the library's scoring of one candidate."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of, seeds_of
from benchmarks.gpu_search.engine import DrawnEngine
from benchmarks.gpu_search.messages import (
    RESTING,
    WARM_UP,
    Free,
    GoOn,
    News,
    Settings,
    Turn,
)
from benchmarks.gpu_search.outcome import Outcome
from benchmarks.gpu_search.variants import VARIANTS
from benchmarks.gpu_search.workload import DrawnTask
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.settings import EngineSettings
from modnorm.search.polling import ParkingPolicy
from modnorm.search.ranking import mean_reward
from modnorm.search.scheduling import Scheduler
from modnorm.search.scheduling import Turn as ParkingTurn
from modnorm.search.scoring import answer_candidate
from modnorm.search.stopping import EarlyStop, Threshold

JUDGES = 2


class Contender:
    """An engine and all that candidates are scored with."""

    def __init__(self, settings: Settings) -> None:
        checkpoint = resolve_checkpoint(settings.model)
        self.engine = DrawnEngine(
            checkpoint,
            EngineSettings(
                gpu_memory_utilization=settings.share, worker_process=settings.cache_bytes is None
            ),
            VARIANTS[settings.variant],
            settings.cache_bytes,
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
        self.engine.stopwatch.take()

    def evaluate(
        self,
        candidate: int,
        bar: Callable[[], Threshold | None] | None,
        parking: ParkingPolicy | None = None,
    ) -> Outcome:
        """Score a candidate, or stop it.

        Args:
            candidate: Its index.
            bar: Returns what it must still be able to pass; None where nothing is stopped.
            parking: When to park it; None to never park it.

        Returns:
            What came of it, and all steps since this was asked last.
        """
        answers = self._workload.answers(candidate)
        self.engine.lengths = answers.lengths
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
            parking=parking,
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
            astray=sum(one.tokens != answers.lengths[one.row] for one in result.answers),
        )

    def close(self) -> None:
        """Free the model."""
        self._judges.shutdown()
        self.engine.close()


class Conversation:
    """What the driver says and hears.

    Args:
        connection: To the driver.
        contender: Evaluates candidates.
    """

    def __init__(self, connection: Connection, contender: Contender) -> None:
        self._connection = connection
        self._contender = contender
        self._scheduler = Scheduler(RESTING)
        self._bar: Threshold | None = None

    def run(self) -> None:
        """Do what is asked until told None."""
        while (message := self._connection.recv()) is not None:
            if isinstance(message, Turn):
                self._bar = message.bar
                self._scheduler.begin(partial(self._evaluate, message))
            if isinstance(message, GoOn):
                self._bar = message.bar
                self._scheduler.resume_best()
            if isinstance(message, (Turn, GoOn)):
                self._connection.send(Free(self._scheduler.parked))

    def _evaluate(self, asked: Turn, turn: ParkingTurn) -> None:
        bar = self._latest if asked.stops else None
        parking = turn if asked.rests else None
        self._connection.send(self._contender.evaluate(asked.candidate, bar, parking))

    def _latest(self) -> Threshold | None:
        while self._connection.poll():
            if not isinstance(message := self._connection.recv(), News):
                raise TypeError(f"{message} in the middle of a candidate")
            self._bar = message.bar
        return self._bar


def serve(connection: Connection, settings: Settings) -> None:
    """Start when told to, say when ready, then evaluate candidates until told None."""
    if connection.recv() is None:
        return
    contender = Contender(settings)
    contender.warm_up()
    connection.send(dict(contender.engine.environment))
    Conversation(connection, contender).run()
    contender.close()


def _go_on(_: int) -> None:
    """Let the work go on."""
