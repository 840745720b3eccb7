"""One engine of this project as a contender, with the library's scoring."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.gpu_search.candidate_outcome import CandidateOutcome
from benchmarks.gpu_search.candidates import descriptor_of, scale_map_of, seeds_of
from benchmarks.gpu_search.drawn_engine import DrawnEngine
from benchmarks.gpu_search.driver_messages import (
    PARKED_LIMIT,
    WARM_UP,
    ContenderSettings,
    EvaluateCandidate,
    Free,
    ResumeParked,
    ThresholdUpdate,
)
from benchmarks.gpu_search.speaking_engine import SpeakingEngine
from benchmarks.gpu_search.workload import DrawnTask
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.engines.protocol import GenerationLimits
from modnorm.engines.settings import Drafts, EngineSettings
from modnorm.search.polling import ParkingPolicy
from modnorm.search.ranking import mean_reward
from modnorm.search.scheduling import Scheduler, Turn
from modnorm.search.scoring import CandidateResult, PromptedRows, answer_candidate
from modnorm.search.stopping import EarlyStop, Threshold

JUDGES = 2


class ScoringEngine:
    """An engine with the parts that score candidates.

    Args:
        settings: The model and how it is loaded.
        worker: Another extension of vLLM's worker.
    """

    def __init__(self, settings: ContenderSettings, worker: str | None = None) -> None:
        checkpoint = resolve_checkpoint(settings.model)
        self.engine = (SpeakingEngine if settings.texts else DrawnEngine)(
            checkpoint,
            EngineSettings(
                gpu_memory_utilization=settings.share,
                worker_process=settings.cache_bytes is None,
                drafts=Drafts.POPULATION if settings.drafts else Drafts.NONE,
            ),
            settings.cache_bytes,
            {"worker_extension_cls": worker} if worker else None,
        )
        if isinstance(self.engine, SpeakingEngine):
            self.engine.load_texts(settings.texts)
        self._workload = settings.workload
        self._prompts = settings.workload.prompts()
        self._scale_map = scale_map_of(checkpoint)
        self._seeds = seeds_of(settings.population)
        self._judges = ThreadPoolExecutor(JUDGES)

    @property
    def cache_blocks(self) -> str:
        """Number of vLLM's cache blocks, which shows what other buffers take."""
        return str(self.engine._engine.vllm_config.cache_config.num_gpu_blocks)  # noqa: SLF001 - vLLM's

    def warm_up(self) -> None:
        """Evaluate a candidate with short answers, to compile kernels and allocate buffers."""
        usual, self._workload = self._workload, self._workload.shortened(WARM_UP)
        self.evaluate(0, None)
        self._workload = usual
        self.engine.stopwatch.take()

    def evaluate(
        self,
        candidate: int,
        threshold: Callable[[], Threshold | None] | None,
        parking: ParkingPolicy | None = None,
    ) -> CandidateOutcome:
        """Score a candidate, or stop it.

        Args:
            candidate: Index of the candidate.
            threshold: Returns its threshold; None if candidates are not stopped.
            parking: When to park it; None for never.

        Returns:
            Its outcome, with all steps since the last call.
        """
        answers = self._workload.answers(candidate)
        self.engine.lengths = answers.lengths
        if isinstance(self.engine, SpeakingEngine):
            self.engine.speak(candidate)
        task = DrawnTask(self._workload.cap)
        limits = GenerationLimits(self._workload.cap)
        began = time.perf_counter()
        rows = self._workload.table(candidate)
        result = answer_candidate(
            self.engine,
            PromptedRows(task, rows, self._prompts, limits),
            descriptor_of(self._scale_map, self._seeds[candidate]),
            self._scale_map,
            judges=self._judges,
            on_progress=_go_on,
            stop=EarlyStop(candidate, task.reward_bounds, threshold) if threshold else None,
            parking=parking,
        ).judged()
        return CandidateOutcome(
            candidate=candidate,
            score=None if result.stopped else mean_reward([one.reward for one in result.answers]),
            began=began,
            ended=time.perf_counter(),
            switch=result.switch_seconds,
            generate=result.generate_seconds,
            judge=result.score_seconds,
            classes=self.engine.stopwatch.take(),
            astray=self._astray(result, answers.lengths),
        )

    def _astray(self, result: CandidateResult, lengths: Sequence[int]) -> int:
        """Return the number of answers with a wrong length, and of those with a wrong text."""
        astray = sum(one.tokens != lengths[one.row] for one in result.answers)
        if isinstance(self.engine, SpeakingEngine):
            astray += self.engine.misspoken
            self.engine.misspoken = 0
        return astray

    def close(self) -> None:
        """Free the model."""
        self._judges.shutdown()
        self.engine.close()


class Conversation:
    """Exchange of messages with the driver."""

    def __init__(self, connection: Connection, contender: ScoringEngine) -> None:
        self._connection = connection
        self._contender = contender
        self._scheduler = Scheduler(PARKED_LIMIT)
        self._threshold: Threshold | None = None

    def run(self) -> None:
        """Handle requests until None arrives."""
        while (message := self._connection.recv()) is not None:
            if isinstance(message, EvaluateCandidate):
                self._threshold = message.threshold
                self._scheduler.begin(partial(self._evaluate, message))
            if isinstance(message, ResumeParked):
                self._threshold = message.threshold
                self._scheduler.resume_best()
            if isinstance(message, (EvaluateCandidate, ResumeParked)):
                self._connection.send(Free(self._scheduler.parked))

    def _evaluate(self, asked: EvaluateCandidate, turn: Turn) -> None:
        early_stop = (self._latest_threshold, turn) if asked.stops else (None, None)
        self._connection.send(self._contender.evaluate(asked.candidate, *early_stop))

    def _latest_threshold(self) -> Threshold | None:
        while self._connection.poll():
            if not isinstance(message := self._connection.recv(), ThresholdUpdate):
                raise TypeError(f"{message} in the middle of a candidate")
            self._threshold = message.threshold
        return self._threshold


def serve(connection: Connection, settings: ContenderSettings) -> None:
    """Start on request, report readiness, then evaluate candidates until None arrives."""
    if connection.recv() is None:
        return
    contender = ScoringEngine(settings)
    contender.warm_up()
    connection.send({**contender.engine.environment, "cache_blocks": contender.cache_blocks})
    Conversation(connection, contender).run()
    contender.close()


def _go_on(_: int) -> None:
    """Do nothing: no request interrupts the work."""
