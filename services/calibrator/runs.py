"""Computations in progress: one for each plan, followed by any number of callers."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from modnorm.errors import CancelledError
from services.common.artifacts import ArtifactStore

TURN_SECONDS = 60.0
"""What a run that can go on later takes at least before it makes way for one that waits: it loads
its model again."""

Progress = tuple[int, int]
"""Measured, and in all."""
Report = Callable[[int, int], None]

logger = logging.getLogger(__name__)


class Work(Protocol):
    """Something to compute, whose outcome its key determines."""

    @property
    def name(self) -> str:
        """What it is called in the log."""

    @property
    def goes_on(self) -> bool:
        """Whether one that was broken off goes on where it was."""

    @property
    def key(self) -> str:
        """SHA-256 over all that the outcome depends on."""

    @property
    def total(self) -> int:
        """Steps in all."""

    def compute(self, report: Report) -> str:
        """Return the artifact as canonical JSON; what `report` raises ends it."""


class _TurnOverError(Exception):
    """Another run waits, and this one has had its turn."""


class Turns:
    """The right to compute, which one run of a process has at a time: each loads a model.

    Runs are served in the order in which they come, or come again.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._end = 0.0

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Wait for a turn, which lasts as long as the context."""
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        self._end = time.monotonic() + TURN_SECONDS
        try:
            yield
        finally:
            self._lock.release()

    def require(self) -> None:
        """End the computation of a turn that was long while others wait; called in its thread.

        Raises:
            _TurnOverError: it is over.
        """
        if self._waiting and time.monotonic() > self._end:
            raise _TurnOverError


class Run:
    """One computation in a worker thread. It stops at the next prompt when nobody follows it.

    Its outcome takes seconds to hours and its only use is that of a caller, so a cancelled
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
            CancelledError: nobody waits for the outcome any more.
        """
        if self.abandoned:
            raise CancelledError("nobody waits for the outcome any more")

    def report(self, done: int, total: int) -> None:
        """Tell the followers; called in the computation's thread.

        Raises:
            CancelledError: there are none.
        """
        self.check()
        self._loop.call_soon_threadsafe(self._publish, (done, total))

    async def follow(self, task: asyncio.Task[str]) -> AsyncGenerator[Progress, None]:
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
        if progress <= self._latest:  # it goes on after others had their turn
            return
        self._latest = progress
        for queue in self._followers:
            queue.put_nowait(progress)


class Runs:
    """The runs of one process. Different ones take turns, since each loads a model.

    Args:
        store: Where finished artifacts go, and are found again.
        turns: Held by the one that computes; shared with other runs of the process.
    """

    def __init__(self, store: ArtifactStore, turns: Turns) -> None:
        self._store = store
        self._turns = turns
        self._running: dict[str, tuple[Run, asyncio.Task[str]]] = {}

    async def follow(self, work: Work) -> AsyncGenerator[Progress | str, None]:
        """Yield progress, then the artifact; equal works share one computation.

        Raises:
            ModnormError: the computation failed.
        """
        run, task = self._join(work)
        async with aclosing(run.follow(task)) as steps:
            async for progress in steps:
                yield progress
        yield task.result()

    def _join(self, work: Work) -> tuple[Run, asyncio.Task[str]]:
        current = self._running.get(work.key)
        if current is not None and not current[0].abandoned:
            return current
        run = Run(work.total)
        task = asyncio.create_task(self._compute(work, run))
        self._running[work.key] = run, task
        task.add_done_callback(lambda ended: self._forget(work, ended))
        return run, task

    def _forget(self, work: Work, ended: asyncio.Task[str]) -> None:
        current = self._running.get(work.key)
        if current is not None and current[1] is ended:
            del self._running[work.key]
        if not ended.cancelled() and (error := ended.exception()) is not None:
            logger.info("%s ended without a result", work.name, exc_info=error)

    async def _compute(self, work: Work, run: Run) -> str:
        while True:
            async with self._turns.held():
                made = await asyncio.to_thread(self._in_turn, work, run)
            if made is not None:
                return made

    def _in_turn(self, work: Work, run: Run) -> str | None:
        """Return the artifact; None where the turn ended before."""

        def report(done: int, total: int) -> None:
            run.report(done, total)
            if work.goes_on:
                self._turns.require()

        try:
            return self._find_or_make(work, run, report)
        except _TurnOverError:
            logger.info("%s makes way", work.name)
            return None

    def _find_or_make(self, work: Work, run: Run, report: Report) -> str:
        def wait() -> None:
            """Leave the turn to others while another process makes the artifact."""
            run.check()
            self._turns.require()

        run.check()
        with self._store.lock(work.key, wait):
            stored = self._store.find(work.key)
            return self._make(work, report) if stored is None else stored

    def _make(self, work: Work, report: Report) -> str:
        started = time.monotonic()
        text = work.compute(report)
        digest = self._store.put(work.key, text)
        seconds = round(time.monotonic() - started, 3)
        logger.info("%s done", work.name, extra={"artifact": digest, "seconds": seconds})
        return text
