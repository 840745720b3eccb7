"""Calibrations in progress: one per key, followed by any number of callers."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from modnorm.errors import CancelledError
from modnorm.services.calibrator.calibration_work import CalibrationWork
from modnorm.services.common.artifact_store import ArtifactStore

Progress = tuple[int, int]
"""Number of finished steps and of all steps."""

logger = logging.getLogger(__name__)


class Computation:
    """A computation in a thread, of seconds to hours.

    Without followers it stops at the next step, so that cancelled experiments free the machine.
    """

    def __init__(self, total: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._latest: Progress = (0, total)
        self._followers: set[asyncio.Queue[Progress | None]] = set()
        self._abandoned = threading.Event()

    @property
    def abandoned(self) -> bool:
        """Whether the last follower has left before the end."""
        return self._abandoned.is_set()

    def check(self) -> None:
        """Stop an abandoned computation; called in its thread.

        Raises:
            CancelledError: the last follower has left.
        """
        if self.abandoned:
            raise CancelledError("no caller waits for the result any more")

    def report(self, done: int, total: int) -> None:
        """Publish progress to the followers; called in the computation's thread.

        Raises:
            CancelledError: the last follower has left.
        """
        self.check()
        self._loop.call_soon_threadsafe(self._publish, (done, total))

    async def follow(self, task: asyncio.Task[str]) -> AsyncGenerator[Progress, None]:
        """Yield progress until the task has ended."""
        queue: asyncio.Queue[Progress | None] = asyncio.Queue()
        queue.put_nowait(self._latest)
        self._followers.add(queue)
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (progress := await queue.get()) is not None:
                yield progress
        finally:
            self._followers.discard(queue)
            if not self._followers and not task.done():
                self._abandoned.set()

    def _publish(self, progress: Progress) -> None:
        self._latest = progress
        for queue in self._followers:
            queue.put_nowait(progress)


class Computations:
    """The computations of one process, which take turns since each loads a model."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._running: dict[str, tuple[Computation, asyncio.Task[str]]] = {}

    async def follow(self, work: CalibrationWork) -> AsyncGenerator[Progress | str, None]:
        """Yield progress, then the artifact; equal work shares one computation.

        Raises:
            ModnormError: the computation failed.
        """
        run, task = self._join(work)
        async with aclosing(run.follow(task)) as steps:
            async for progress in steps:
                yield progress
        yield task.result()

    def _join(self, work: CalibrationWork) -> tuple[Computation, asyncio.Task[str]]:
        current = self._running.get(work.key)
        if current is not None and not current[0].abandoned:
            return current
        run = Computation(work.total)
        task = asyncio.create_task(self._compute(work, run))
        self._running[work.key] = run, task
        task.add_done_callback(lambda ended: self._forget(work, ended))
        return run, task

    def _forget(self, work: CalibrationWork, ended: asyncio.Task[str]) -> None:
        current = self._running.get(work.key)
        if current is not None and current[1] is ended:
            del self._running[work.key]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            logger.info("calibration ended without a result", exc_info=error)

    async def _compute(self, work: CalibrationWork, run: Computation) -> str:
        async with self._turn:
            return await asyncio.to_thread(self._find_or_make, work, run)

    def _find_or_make(self, work: CalibrationWork, run: Computation) -> str:
        run.check()
        with self._store.lock(work.key, run.check):
            if (stored := self._store.find(work.key)) is not None:
                return stored
            started = time.monotonic()
            text = work.compute(run.report)
            digest = self._store.put(work.key, text)
            seconds = round(time.monotonic() - started, 3)
            logger.info("calibration done", extra={"artifact": digest, "seconds": seconds})
            return text
