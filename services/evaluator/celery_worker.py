"""The Celery worker: takes job ids from the queue and passes each to the engine thread."""

import logging
import os
import platform
import threading

from celery.exceptions import Reject
from prometheus_client import CollectorRegistry

from modnorm.engines import load_engine
from modnorm.sandbox import Runner
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.v1.models_pb2_grpc import ModelServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.remote_sandbox import sandbox_at
from services.common.channels import CHANNEL_OPTIONS
from services.common.queue import QUEUE, TASK
from services.common.settings import EvaluatorSettings
from services.common.student_transfer import fetch_student
from services.common.students import Students
from services.common.worker.queue_loop import QueueLoop
from services.common.worker.shutdown import Shutdown
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.candidate_lease import longest_silence
from services.evaluator.engine_thread import EngineThread
from services.evaluator.job_runner import JobRunner
from services.evaluator.job_scoring import JobScorer
from services.evaluator.metrics import EvaluatorMetrics
from services.evaluator.model_cache import LoadEngine, Loading
from services.evaluator.watchdog import Watchdog

JOIN_SECONDS = 16.0
"""Longest stop beyond the grace period: a decode step, a call, a poll of the queue, and up to ten
seconds to close an engine."""
POLL_SECONDS = 0.2
"""Seconds between two checks whether a stop has become immediate."""

logger = logging.getLogger(__name__)


class Worker:
    """An evaluator without a server: `run` blocks until `stop` is called from another thread.

    It installs no signal handlers, so it runs in any thread.
    """

    def __init__(
        self,
        settings: EvaluatorSettings,
        *,
        sandbox: Runner | None = None,
        load: LoadEngine = load_engine,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._shutdown = Shutdown(settings.stop_grace)
        self._watchdog = Watchdog(settings.stall_seconds)
        self._running = threading.Lock()
        name = settings.worker_name or f"{platform.node()}-{os.getpid()}"
        credentials = settings.credentials
        self._channel = open_channel(settings.aggregator_target, credentials, CHANNEL_OPTIONS)
        client = AggregatorClient(
            JobServiceStub(self._channel), worker=name, shutdown=self._shutdown
        )
        self._runner = JobRunner(
            client,
            self._shutdown,
            JobScorer(
                client,
                _loading(settings, load, ModelServiceStub(self._channel)),
                watchdog=self._watchdog,
                sandbox=sandbox or sandbox_at(settings.sandbox_target, credentials),
                metrics=EvaluatorMetrics(registry or CollectorRegistry()),
            ),
            heartbeat_seconds=settings.heartbeat_seconds,
            model_patience=settings.model_patience,
            parked_limit=settings.parked_candidates,
            silence_seconds=longest_silence(settings.stall_seconds),
        )
        self._engine = EngineThread(self._runner, self._shutdown, settings.torch_threads)
        self._loop = QueueLoop(
            settings.broker_url, queue=QUEUE, task=TASK, handle=self._evaluate, name=name
        )

    @property
    def serving(self) -> bool:
        """Whether the worker consumes the queue: connected to the broker and not stopping."""
        return self._loop.is_connected and not self._shutdown.requested.is_set()

    @property
    def hangs(self) -> bool:
        """Whether the engine shows no sign of life within the watchdog's limit."""
        return self._watchdog.is_overdue

    @property
    def makes_room(self) -> bool:
        """Whether the worker ended because a model needs a larger share of the GPU."""
        return self._runner.scorer.makes_room

    def run(self) -> None:
        """Work until `stop` is called; wait for a broker or an aggregator that is down."""
        with self._running:
            self._engine.start()
            try:
                self._loop.run()
            finally:
                self._engine.close()
                self._channel.close()

    def stop(self) -> None:
        """Take no more jobs; finish the current job, or release it after the grace period.

        Returns when `run` has ended. The load of a model and a wait for the broker cannot be
        interrupted: after `JOIN_SECONDS` this method releases the jobs itself.
        """
        self._shutdown.request()
        self._loop.end()
        if not self._ends():
            logger.warning("the worker did not stop in time")
            self._runner.release()

    def stop_now(self) -> None:
        """End the grace period of the present or next stop; from any thread."""
        self._shutdown.stop_now()

    def abandon(self) -> None:
        """Fail the current job, for a process that is about to end; from any thread."""
        self._runner.abandon()

    def _ends(self) -> bool:
        """Wait until `run` has ended; return False if it takes too long."""
        while not self._running.acquire(timeout=POLL_SECONDS):
            if self._shutdown.overrun > JOIN_SECONDS:
                return False
        self._running.release()
        return True

    def _evaluate(self, job_id: str) -> None:
        """Begin the job of a message; Celery acknowledges the message when this returns."""
        if self._shutdown.requested.wait(self._runner.pause) or not self._engine.begin(job_id):
            raise Reject("the worker is stopping", requeue=True)
        if self._runner.scorer.needs_new_process:
            logger.error("this process ends: the model needs a new one")
            self._loop.end()


def _loading(settings: EvaluatorSettings, load: LoadEngine, models: ModelServiceStub) -> Loading:
    students = Students(settings.students)
    return Loading(
        roots=settings.model_roots,
        share=settings.gpu_memory_utilization,
        lock=settings.load_lock,
        may_make_room=settings.may_make_room,
        load=load,
        fetch=lambda digest: fetch_student(models, digest, students),
    )
