"""Computations in progress: one for each plan, followed by any number of callers."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from modnorm.calibration.calibrate import calibrate
from modnorm.calibration.profile import Profile
from modnorm.errors import CancelledError
from services.calibrator.plan import Plan
from services.common.artifacts import ArtifactStore

Progress = tuple[int, int]
"""Prompts measured, prompts in all."""

logger = logging.getLogger(__name__)


class Run:
    """One computation in a worker thread. It stops at the next prompt when nobody follows it.

    A profile takes seconds to minutes and its only use is that of a caller, so a cancelled
    experiment does not keep the machine busy.
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
            CancelledError: nobody waits for the profile any more.
        """
        if self.abandoned:
            raise CancelledError("nobody waits for the profile any more")

    def report(self, done: int, total: int) -> None:
        """Tell the followers; called in the computation's thread.

        Raises:
            CancelledError: there are none.
        """
        self.check()
        self._loop.call_soon_threadsafe(self._publish, (done, total))

    async def follow(self, task: asyncio.Task[Profile]) -> AsyncGenerator[Progress, None]:
        """Yield progress until the task of this run is over."""
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


class Runs:
    """The runs of one process. Different plans take turns, since each loads a model.

    Args:
        store: Where finished profiles go, and are found again.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._turn = asyncio.Semaphore(1)
        self._running: dict[str, tuple[Run, asyncio.Task[Profile]]] = {}

    async def follow(self, plan: Plan) -> AsyncGenerator[Progress | Profile, None]:
        """Yield progress, then the profile; equal plans share one computation.

        Raises:
            ModnormError: the calibration failed.
        """
        run, task = self._join(plan)
        async with aclosing(run.follow(task)) as steps:
            async for progress in steps:
                yield progress
        yield task.result()

    def _join(self, plan: Plan) -> tuple[Run, asyncio.Task[Profile]]:
        current = self._running.get(plan.key)
        if current is not None and not current[0].abandoned:
            return current
        run = Run(len(plan.prompts))
        task = asyncio.create_task(self._compute(plan, run))
        self._running[plan.key] = run, task
        task.add_done_callback(lambda ended: self._forget(plan.key, ended))
        return run, task

    def _forget(self, key: str, ended: asyncio.Task[Profile]) -> None:
        current = self._running.get(key)
        if current is not None and current[1] is ended:
            del self._running[key]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            logger.info("calibration ended without a profile", exc_info=error)

    async def _compute(self, plan: Plan, run: Run) -> Profile:
        async with self._turn:
            return await asyncio.to_thread(self._find_or_make, plan, run)

    def _find_or_make(self, plan: Plan, run: Run) -> Profile:
        with self._store.lock(plan.key, run.check):
            stored = self._store.find(plan.key)
            if stored is not None:
                return Profile.from_json(stored)
            return self._make(plan, run)

    def _make(self, plan: Plan, run: Run) -> Profile:
        started = time.monotonic()
        profile = calibrate(
            plan.checkpoint, plan.prompts, plan.settings, task=plan.task, on_progress=run.report
        )
        self._store.put(plan.key, profile.to_json())
        seconds = round(time.monotonic() - started, 3)
        logger.info("calibrated", extra={"profile": profile.digest, "seconds": seconds})
        return profile
