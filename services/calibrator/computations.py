"""Computations in progress: one per key, followed by any number of callers."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from modnorm.errors import CancelledError
from services.common.artifact_store import ArtifactStore

TURN_SECONDS = 60.0
"""Least length of a turn in seconds: a resumed computation has to load its model again."""

Progress = tuple[int, int]
"""Number of finished steps and of all steps."""
Report = Callable[[int, int], None]

logger = logging.getLogger(__name__)


class Work(Protocol):
    """A computation whose key determines its result."""

    @property
    def name(self) -> str:
        """Name of the computation in the log."""

    @property
    def is_resumable(self) -> bool:
        """Whether the computation can be interrupted and resumed."""

    @property
    def key(self) -> str:
        """SHA-256 of all inputs of the result."""

    @property
    def total(self) -> int:
        """Number of steps."""

    def compute(self, report: Report) -> str:
        """Return the artifact as canonical JSON; an error of `report` ends it."""


class _TurnOverError(Exception):
    """The turn has ended because another computation waits."""


class Turns:
    """Turns of computations: only one runs at a time, since each loads a model.

    Computations wait in a queue; a computation that yields returns to the end of it.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._end = 0.0

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Wait for a turn; it ends with the context."""
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
        """Check that the turn continues; called in the thread of the computation.

        Raises:
            _TurnOverError: the turn was long enough, and another computation waits.
        """
        if self._waiting and time.monotonic() > self._end:
            raise _TurnOverError


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
        if progress <= self._latest:  # repeated steps of a resumed computation
            return
        self._latest = progress
        for queue in self._followers:
            queue.put_nowait(progress)


class Computations:
    """The computations of one process, which take turns since each loads a model."""

    def __init__(self, store: ArtifactStore, turns: Turns) -> None:
        self._store = store
        self._turns = turns
        self._running: dict[str, tuple[Computation, asyncio.Task[str]]] = {}

    async def follow(self, work: Work) -> AsyncGenerator[Progress | str, None]:
        """Yield progress, then the artifact; equal work shares one computation.

        Raises:
            ModnormError: the computation failed.
        """
        run, task = self._join(work)
        async with aclosing(run.follow(task)) as steps:
            async for progress in steps:
                yield progress
        yield task.result()

    def _join(self, work: Work) -> tuple[Computation, asyncio.Task[str]]:
        current = self._running.get(work.key)
        if current is not None and not current[0].abandoned:
            return current
        run = Computation(work.total)
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

    async def _compute(self, work: Work, run: Computation) -> str:
        while True:
            async with self._turns.held():
                made = await asyncio.to_thread(self._in_turn, work, run)
            if made is not None:
                return made

    def _in_turn(self, work: Work, run: Computation) -> str | None:
        """Return the artifact, or None if the turn ended first."""

        def report(done: int, total: int) -> None:
            run.report(done, total)
            if work.is_resumable:
                self._turns.require()

        try:
            return self._find_or_make(work, run, report)
        except _TurnOverError:
            logger.info("%s yields to another computation", work.name)
            return None

    def _find_or_make(self, work: Work, run: Computation, report: Report) -> str:
        def wait() -> None:
            """Yield the turn while another process computes the artifact."""
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
