"""The one thread that uses the engine: CUDA streams and parked requests belong to a thread."""

import logging
import threading
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue

import torch

from services.common.worker.shutdown import Shutdown
from services.evaluator.job_runner import JobRunner

IDLE_SECONDS = 0.1
"""Seconds without a new job after which a parked job continues."""

logger = logging.getLogger(__name__)


class EngineThread:
    """Begins each submitted job, and continues parked jobs while no job is submitted.

    Only this thread uses the runner. No job begins after the request to stop.
    """

    def __init__(self, runner: JobRunner, shutdown: Shutdown, torch_threads: int = 0) -> None:
        self._runner = runner
        self._shutdown = shutdown
        self._torch_threads = torch_threads
        self._calls: SimpleQueue[tuple[partial[None], Future[bool]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def begin(self, job_id: str) -> bool:
        """Begin a job in the caller's context; return when the engine can take another.

        Returns:
            Whether the job was begun; False if the worker is stopping.
        """
        begun: Future[bool] = Future()
        self._calls.put((partial(copy_context().run, self._runner.begin, job_id), begun))
        return begun.result()

    def close(self) -> None:
        """Close the runner after the current job; return when the thread has ended."""
        self._calls.put(None)
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
        """Begin the next job, or continue a parked one if none comes; return False at the end."""
        try:
            call = self._calls.get(timeout=IDLE_SECONDS if self._runner.has_parked else None)
        except Empty:
            self._continue_parked()
            return True
        if call is None:
            return False
        begin, begun = call
        is_wanted = not self._shutdown.requested.is_set()
        try:
            if is_wanted:
                begin()
            begun.set_result(is_wanted)
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            begun.set_exception(error)
        return True

    def _continue_parked(self) -> None:
        try:
            self._runner.continue_parked()
        except BaseException:
            # Without this thread a caller of `begin` would wait forever.
            logger.exception("a parked job could not continue")
