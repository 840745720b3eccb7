"""The Celery worker: takes job ids from the queue and passes each to the engine thread."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from prometheus_client import CollectorRegistry
from typing_extensions import override

from modnorm.engines import load_engine
from modnorm.sandbox import Runner
from modnorm.services.common.queue import QUEUE, TASK
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.common.worker.queue_worker import QueueWorker
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.candidate_lease import longest_silence
from modnorm.services.evaluator.engine_thread import EngineThread
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.job_scoring import JobScorer
from modnorm.services.evaluator.metrics import EvaluatorMetrics
from modnorm.services.evaluator.model_cache import LoadEngine, Loading
from modnorm.services.evaluator.watchdog import Watchdog
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.remote_sandbox import sandbox_at

JOIN_SECONDS = 16.0
"""Longest stop beyond the grace period: a decode step, a call, a poll of the queue, and up to ten
seconds to close an engine."""

logger = logging.getLogger(__name__)


class Worker(QueueWorker):
    """An evaluator."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        *,
        sandbox: Runner | None = None,
        load: LoadEngine = load_engine,
        registry: CollectorRegistry | None = None,
    ) -> None:
        super().__init__(settings, queue=QUEUE, task=TASK, join_seconds=JOIN_SECONDS)
        self._watchdog = Watchdog(settings.stall_seconds)
        client = AggregatorClient(
            JobServiceStub(self._channel), worker=self.name, shutdown=self._shutdown
        )
        self._runner = JobRunner(
            client,
            self._shutdown,
            JobScorer(
                client,
                _loading(settings, load),
                watchdog=self._watchdog,
                sandbox=sandbox or sandbox_at(settings.sandbox_target, settings.credentials),
                metrics=EvaluatorMetrics(registry or CollectorRegistry()),
            ),
            heartbeat_seconds=settings.heartbeat_seconds,
            parked_limit=settings.parked_candidates,
            silence_seconds=longest_silence(settings.stall_seconds),
        )
        self._engine = EngineThread(
            self._runner, self._shutdown, settings.torch_threads, self._end_if_needed
        )

    @property
    def hangs(self) -> bool:
        """Whether the engine shows no sign of life within the watchdog's limit."""
        return self._watchdog.is_overdue

    @property
    def makes_room(self) -> bool:
        """Whether the worker ended because a model needs a larger share of the GPU."""
        return self._runner.scorer.makes_room

    def warm(self, job: messages.Job) -> None:
        """Load the model of a job that will come; return at once, from any thread."""
        self._engine.warm(job)

    def abandon(self) -> None:
        """Fail the current job, for a process that is about to end; from any thread."""
        self._runner.abandon()

    @property
    @override
    def _pause(self) -> float:
        return self._runner.pause

    @override
    @contextmanager
    def _working(self) -> Iterator[None]:
        self._engine.start()
        with closing(self._engine):
            yield

    @override
    def _release(self) -> None:
        self._runner.release()

    @override
    def _handle(self, job_id: str) -> bool:
        job = self._runner.claim(job_id)
        return job is None or self._engine.begin(job)

    def _end_if_needed(self) -> None:
        if self._runner.scorer.needs_new_process:
            logger.error("this process ends: the model needs a new one")
            self._loop.end()


def _loading(settings: EvaluatorSettings, load: LoadEngine) -> Loading:
    return Loading(
        roots=settings.model_roots,
        share=settings.gpu_memory_utilization,
        lock=settings.load_lock,
        may_make_room=settings.may_make_room,
        load=load,
    )
