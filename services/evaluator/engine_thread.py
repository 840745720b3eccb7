"""The one thread that uses the engine: CUDA streams belong to a thread."""

import logging
import threading
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

import torch

from modnorm.services.evaluator.job_runner import ClaimedJob, JobRunner
from modnorm.services.evaluator.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


_Submitted = tuple[ClaimedJob, Context, Future[bool]]


class EngineThread:
    """Begins each submitted job."""

    def __init__(self, runner: JobRunner, shutdown: Shutdown, torch_threads: int = 0) -> None:
        self._runner = runner
        self._shutdown = shutdown
        self._torch_threads = torch_threads
        self._jobs: SimpleQueue[_Submitted | Callable[[], None] | None] = SimpleQueue()
        self._is_warming = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, job: ClaimedJob) -> bool:
        """Begin a job in the caller's context; return when the next job should be claimed."""
        wants_next: Future[bool] = Future()
        job.lease.on_tail = partial(_resolve, wants_next)
        self._jobs.put((job, copy_context(), wants_next))
        return wants_next.result()

    def warm(self, job: messages.Job) -> None:
        """Load the model of a job that will come, unless the engine has one; return at once."""
        self._jobs.put(partial(self._runner.warm, job))

    def close(self) -> None:
        """Close the runner after the current job; return when the thread has ended."""
        self._jobs.put(None)
        if not self._is_warming:
            self._thread.join()

    def _run(self) -> None:
        if self._torch_threads:
            torch.set_num_threads(self._torch_threads)
        try:
            while self._do_next():
                pass
        finally:
            self._runner.close()

    def _do_next(self) -> bool:
        """Begin the next job; return False at the end."""
        submitted = self._jobs.get()
        if submitted is None:
            return False
        if callable(submitted):
            self._is_warming = True
            submitted()
            self._is_warming = False
            return True
        job, context, wants_next = submitted
        if self._shutdown.requested.is_set():
            self._runner.pass_on(job, "the worker is stopping")
            wants_next.set_result(False)
            return True
        try:
            context.run(self._runner.begin, job)
        except BaseException as error:
            if not wants_next.done():
                wants_next.set_exception(error)
            else:
                logger.exception("a job could not begin")
        finally:
            _resolve(wants_next)
        return True


def _resolve(wants_next: Future[bool]) -> None:
    if not wants_next.done():
        wants_next.set_result(True)
