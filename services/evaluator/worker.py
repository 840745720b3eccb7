"""The evaluator's worker: claims jobs and passes each to the engine thread."""

import logging
import os
import platform
import threading
from concurrent.futures import Future
from contextlib import closing
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import torch
from prometheus_client import CollectorRegistry

from modnorm.sandbox import Runner
from modnorm.services.common.channels import CHANNEL_OPTIONS
from modnorm.services.common.queue import WorkListener
from modnorm.services.common.settings import EvaluatorSettings
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.job_runner import JobRunner
from modnorm.services.evaluator.job_scoring import JobScorer
from modnorm.services.evaluator.lease import CandidateLease, longest_silence
from modnorm.services.evaluator.metrics import EvaluatorMetrics
from modnorm.services.evaluator.shutdown import Shutdown, Watchdog
from modnorm.v1 import evaluation_pb2 as messages
from modnorm.v1.evaluation_pb2_grpc import JobServiceStub
from modnorm.wire.channel import open_channel
from modnorm.wire.remote_sandbox import sandbox_at

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class EngineThread:
    """Begins each submitted job; a job can be claimed while it loads the first model."""

    def __init__(self, runner: JobRunner, shutdown: Shutdown, torch_threads: int = 0) -> None:
        self._runner = runner
        self._shutdown = shutdown
        self._torch_threads = torch_threads
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_warming = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, job: CandidateLease) -> bool:
        """Begin a job in the caller's context; return False if the worker stops instead."""
        begun: Future[bool] = Future()
        self._work.put(partial(self._begin, job, copy_context(), begun))
        return begun.result()

    def warm(self, job: messages.Job) -> None:
        """Load the model of a job that will come, unless the engine has one; return at once."""
        self._work.put(partial(self._warm, job))

    def close(self) -> None:
        """Close the runner after the current job; return when the thread has ended."""
        self._work.put(None)
        if not self._is_warming:
            self._thread.join()

    def _run(self) -> None:
        if self._torch_threads:
            torch.set_num_threads(self._torch_threads)
        try:
            while (work := self._work.get()) is not None:
                work()
        finally:
            self._runner.close()

    def _warm(self, job: messages.Job) -> None:
        self._is_warming = True
        self._runner.warm(job)
        self._is_warming = False

    def _begin(self, job: CandidateLease, context: Context, begun: Future[bool]) -> None:
        if self._shutdown.requested.is_set():
            self._runner.pass_on(job, "the worker is stopping")
            begun.set_result(False)
            return
        try:
            context.run(self._runner.begin, job)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            begun.set_exception(error)
        else:
            begun.set_result(True)


JOIN_SECONDS = 16.0
"""Longest stop beyond the grace period: a decode step, a call, and up to ten seconds to close an
engine."""
_POLL_SECONDS = 0.2
"""Seconds between two checks whether a stop has become immediate."""


class Worker:
    """A worker without a server: `run` blocks until `stop` is called from another thread."""

    def __init__(
        self,
        settings: EvaluatorSettings,
        *,
        sandbox: Runner | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.name = settings.worker_name or f"{platform.node()}-{os.getpid()}"
        self._shutdown = Shutdown(settings.stop_grace)
        self._running = threading.Lock()
        self._idle_seconds = settings.heartbeat_seconds
        self._first_job = settings.first_job
        self._woken = threading.Event()
        self._listener = WorkListener(settings.broker_url, self._woken.set, self.name)
        self._watchdog = Watchdog(settings.stall_seconds)
        self._channel = open_channel(settings.aggregator_target, settings, CHANNEL_OPTIONS)
        self._client = client = AggregatorClient(
            JobServiceStub(self._channel), worker=self.name, shutdown=self._shutdown
        )
        self._scorer = JobScorer(
            client,
            settings,
            watchdog=self._watchdog,
            sandbox=sandbox or sandbox_at(settings.sandbox_target, settings),
            metrics=EvaluatorMetrics(registry or CollectorRegistry()),
        )
        self._runner = JobRunner(
            client,
            self._shutdown,
            self._scorer,
            heartbeat_seconds=settings.heartbeat_seconds,
            silence_seconds=longest_silence(settings.stall_seconds),
        )
        self._engine = EngineThread(self._runner, self._shutdown, settings.torch_threads)

    @property
    def serving(self) -> bool:
        """Whether the worker is connected to the broker, not refused and not stopping."""
        is_stopping = self._shutdown.requested.is_set()
        return self._listener.is_connected and not self._client.is_refused and not is_stopping

    @property
    def hangs(self) -> bool:
        """Whether the engine or a judge shows no sign of life within the watchdog's limit."""
        return self._watchdog.is_overdue or self._scorer.judge_hangs

    @property
    def makes_room(self) -> bool:
        """Whether the worker ended because a model needs a larger share of the GPU."""
        return self._scorer.makes_room

    def warm(self, job: messages.Job) -> None:
        """Load the model of a job that will come; return at once, from any thread."""
        self._engine.warm(job)

    def abandon(self) -> None:
        """Fail the job that hangs, for a process that is about to end; from any thread."""
        self._runner.abandon()

    def run(self) -> None:
        """Work until `stop` is called or a model needs a new process."""
        self._engine.start()
        with self._running, closing(self._channel), closing(self._listener), closing(self._engine):
            if self._first_job is not None:
                self.warm(messages.Job.FromString(self._first_job.read_bytes()))
            self._listener.start()
            while not self._shutdown.requested.wait(self._runner.pause):
                self._woken.clear()
                job = self._runner.claim()
                if job is None:
                    self._woken.wait(self._idle_seconds)
                elif not self._engine.begin(job):
                    return
                if self._scorer.needs_new_process:
                    logger.error("this process ends: the model needs a new one")
                    return

    def stop(self) -> None:
        """Take no more jobs; finish the current job, or release it after the grace period."""
        self._shutdown.request()
        self._woken.set()
        while not self._running.acquire(timeout=_POLL_SECONDS):
            if self._shutdown.overrun > JOIN_SECONDS:
                logger.warning("the worker did not stop in time")
                self._runner.release()
                return
        self._running.release()

    def stop_now(self) -> None:
        """End the grace period of the present or next stop; from any thread."""
        self._shutdown.stop_now()
        self._woken.set()
