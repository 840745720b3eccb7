"""The Celery worker: takes job ids from the queue, one at a time, and gives them to the engine."""

import logging
import os
import platform
import threading
from typing import NoReturn

from celery import Celery
from celery.exceptions import Reject, WorkerShutdown
from prometheus_client import CollectorRegistry

from modnorm.engines import load_engine
from modnorm.sandbox import Runner
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.remote_sandbox import sandbox_at
from services.common.channels import CHANNEL_OPTIONS
from services.common.queue import QUEUE, TASK, make_celery
from services.common.settings import EvaluatorSettings
from services.evaluator.engine_thread import EngineThread
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.job_runner import JobRunner
from services.evaluator.job_scoring import Evaluator
from services.evaluator.lease import longest_silence
from services.evaluator.metrics import EvaluatorMetrics
from services.evaluator.model_cache import LoadEngine, Loading
from services.evaluator.queue_messages import QueueConsumer
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import Pulse

JOIN_SECONDS = 16.0
"""Seconds that a stop takes beyond the grace period: a decode step, a call, a queue poll, and the
end of an engine, which may take ten."""
LOOK_SECONDS = 0.2
"""Seconds between two looks at whether a stop has to be quicker than it was to be."""

logger = logging.getLogger(__name__)


class Worker:
    """An evaluator without a server: `run` blocks until `stop` is called from another thread.

    Installs no signal handlers, so it runs in any thread.

    Args:
        settings: Broker, aggregator, directories, pauses.
        sandbox: Runs programs that models wrote; the service of the settings when absent.
        load: Makes engines.
        registry: Where metrics go; nowhere when absent.
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
        self._pulse = Pulse(settings.stall_seconds)
        self._running = threading.Lock()
        self._name = settings.worker_name or f"{platform.node()}-{os.getpid()}"
        self._app = app = make_celery(settings.broker_url)
        # A solo worker answers no command during a job; heartbeats and health checks do.
        app.conf.worker_enable_remote_control = False
        app.conf.broker_connection_max_retries = None
        # Celery warns where this is unset. A solo worker runs no task when it notices a loss.
        app.conf.worker_cancel_long_running_tasks_on_connection_loss = True
        app.conf.worker_consumer = QueueConsumer
        shown = settings.credentials
        self._channel = open_channel(settings.aggregator_target, shown, CHANNEL_OPTIONS)
        stub = JobServiceStub(self._channel)
        gateway = AggregatorClient(stub, worker=self._name, shutdown=self._shutdown)
        self._runner = JobRunner(
            gateway,
            self._shutdown,
            Evaluator(
                gateway,
                _loading(settings, load),
                pulse=self._pulse,
                sandbox=sandbox or sandbox_at(settings.sandbox_target, shown),
                metrics=EvaluatorMetrics(registry or CollectorRegistry()),
            ),
            heartbeat_seconds=settings.heartbeat_seconds,
            model_patience=settings.model_patience,
            resting=settings.resting_candidates,
            silence_seconds=longest_silence(settings.stall_seconds),
        )
        self._engine = EngineThread(self._runner, self._shutdown, settings.torch_threads)
        self._register(app)
        self._controller = app.WorkController(
            hostname=f"{self._name}-{id(self):x}",
            pool="solo",
            concurrency=1,
            queues=[QUEUE],
            use_eventloop=False,  # a task of the solo pool would block it
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        )

    @property
    def serving(self) -> bool:
        """Whether it consumes the queue: connected to the broker and not stopping."""
        connection = self._controller.consumer.connection
        connected = connection is not None and bool(connection.connected)
        return connected and not self._shutdown.requested.is_set()

    @property
    def hangs(self) -> bool:
        """Whether the engine has shown no sign of life for too long."""
        return self._pulse.has_stopped

    def abandon(self) -> None:
        """Fail the job in hand, for a process that is about to end; from another thread."""
        self._runner.abandon()

    @property
    def makes_room(self) -> bool:
        """Whether it ended by itself because a model needs a larger share of the GPU."""
        return self._runner.makes_room

    def run(self) -> None:
        """Work until told to stop. Waits for a broker or an aggregator that is down."""
        # Celery finds tasks through the current application, which is one of the thread.
        self._app.set_current()
        with self._running:
            self._engine.start()
            try:
                self._controller.start()
            finally:
                self._engine.close()
                self._channel.close()

    def stop(self) -> None:
        """Take no more jobs; finish the one in hand, or hand it back after the grace period.

        Returns when `run` has ended, or has not in time: a thread that loads a model, or waits for
        a broker that is down, cannot be told. What it has in hand is then handed back from here.
        """
        self._shutdown.request()
        self._controller.consumer.call_soon(_shut_down)
        if not self._ends():
            logger.warning("the worker did not stop in time")
            self._runner.release()

    def hurry(self) -> None:
        """Let a stop, in progress or to come, hand the job in hand back now; from any thread."""
        self._shutdown.hurry()

    def _ends(self) -> bool:
        """Wait until `run` has ended; return whether it has in time."""
        while not self._running.acquire(timeout=LOOK_SECONDS):
            if self._shutdown.overrun > JOIN_SECONDS:
                return False
        self._running.release()
        return True

    def _register(self, app: Celery) -> None:
        # Not shared: this process may hold other applications, with workers of their own.
        @app.task(name=TASK, shared=False)  # type: ignore[untyped-decorator]  # celery has no types
        def evaluate(job_id: str) -> None:
            if self._shutdown.requested.wait(self._runner.pause) or not self._engine.begin(job_id):
                raise Reject("the worker is stopping", requeue=True)
            if self._runner.spent:
                logger.error("this process is spent: a new one has to take its place")
                self._controller.consumer.call_soon(_shut_down)


def _loading(settings: EvaluatorSettings, load: LoadEngine) -> Loading:
    return Loading(
        roots=settings.model_roots,
        share=settings.gpu_memory_utilization,
        lock=settings.load_lock,
        may_make_room=settings.may_make_room,
        load=load,
    )


def _shut_down() -> NoReturn:
    """End the consumer's loop, in its own thread."""
    raise WorkerShutdown(0)
