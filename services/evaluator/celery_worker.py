"""The Celery worker: takes job ids from the queue and passes each to the engine thread."""

import logging
import os
import platform
import threading
from typing import NoReturn

from celery import Celery
from celery.exceptions import Reject, WorkerShutdown
from celery.worker import WorkController
from prometheus_client import CollectorRegistry

from modnorm.engines import load_engine
from modnorm.sandbox import Runner
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.remote_sandbox import sandbox_at
from services.common.channels import CHANNEL_OPTIONS
from services.common.queue import QUEUE, TASK, make_celery
from services.common.settings import EvaluatorSettings
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.engine_thread import EngineThread
from services.evaluator.job_runner import JobRunner
from services.evaluator.job_scoring import JobScorer
from services.evaluator.lease import longest_silence
from services.evaluator.metrics import EvaluatorMetrics
from services.evaluator.model_cache import LoadEngine, Loading
from services.evaluator.queue_messages import QueueConsumer
from services.evaluator.shutdown import Shutdown
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
                _loading(settings, load),
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
        self._app = _celery_app(settings.broker_url)
        # Not shared: this process may hold other Celery applications with their own workers.
        self._app.task(self._evaluate, name=TASK, shared=False)
        self._controller = _solo_controller(self._app, f"{name}-{id(self):x}")

    @property
    def serving(self) -> bool:
        """Whether the worker consumes the queue: connected to the broker and not stopping."""
        connection = self._controller.consumer.connection
        connected = connection is not None and bool(connection.connected)
        return connected and not self._shutdown.requested.is_set()

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
        # Celery finds tasks through the thread's current application.
        self._app.set_current()
        with self._running:
            self._engine.start()
            try:
                self._controller.start()
            finally:
                self._engine.close()
                self._channel.close()

    def stop(self) -> None:
        """Take no more jobs; finish the current job, or release it after the grace period.

        Returns when `run` has ended. The load of a model and a wait for the broker cannot be
        interrupted: after `JOIN_SECONDS` this method releases the jobs itself.
        """
        self._shutdown.request()
        self._end_loop()
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
            self._end_loop()

    def _end_loop(self) -> None:
        """Make Celery's consumer end its loop in its own thread."""
        self._controller.consumer.call_soon(_shut_down)


def _loading(settings: EvaluatorSettings, load: LoadEngine) -> Loading:
    return Loading(
        roots=settings.model_roots,
        share=settings.gpu_memory_utilization,
        lock=settings.load_lock,
        may_make_room=settings.may_make_room,
        load=load,
    )


def _solo_controller(app: Celery, hostname: str) -> WorkController:
    """Return Celery's controller for a worker that runs tasks in its own thread."""
    return app.WorkController(
        hostname=hostname,
        pool="solo",
        concurrency=1,
        queues=[QUEUE],
        use_eventloop=False,  # a task of the solo pool would block it
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )


def _celery_app(broker_url: str) -> Celery:
    app = make_celery(broker_url)
    app.conf.update(
        # A solo worker answers no command during a job.
        worker_enable_remote_control=False,
        broker_connection_max_retries=None,
        # Celery warns if this is unset. A solo worker runs no task when it notices a loss.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        worker_consumer=QueueConsumer,
    )
    return app


def _shut_down() -> NoReturn:
    raise WorkerShutdown(0)
