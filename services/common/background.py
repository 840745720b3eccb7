"""Work apart from calls: tasks that outlive their caller, and threads for what takes minutes."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from modnorm.errors import ModnormError

ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)


class ShieldedTasks:
    """Runs writes with their follow-up; used in one event loop.

    gRPC cancels the handler of a call whose caller disconnects. Work that the handler awaits
    through `run` continues, so that every committed change is also followed up.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(
        self,
        work: Coroutine[object, object, ResultT],
        undelivered: Callable[[ResultT], None] = lambda _: None,
    ) -> ResultT:
        """Return the result of work that finishes even if the caller is cancelled."""
        task = self._start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda ended: _end(ended, undelivered))
            raise

    def start(self, work: Coroutine[object, object, object]) -> None:
        """Run work without a caller."""
        self._start(work).add_done_callback(lambda ended: _end(ended, lambda _: None))

    async def settle(self) -> None:
        """Wait until all work has finished."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[object, object, ResultT]) -> asyncio.Task[ResultT]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _end(task: asyncio.Task[ResultT], undelivered: Callable[[ResultT], None]) -> None:
    """Log an error that reaches no caller; pass an undelivered result on."""
    if task.cancelled():
        return
    error = task.exception()
    if error is None:
        undelivered(task.result())
    elif not isinstance(error, ModnormError):
        logger.error("a call failed after its caller disconnected", exc_info=error)


ParamsT = ParamSpec("ParamsT")


class SlowThreads:
    """A few threads for calls that take seconds or minutes.

    `asyncio.to_thread` has few threads for all calls, and these would block them. Work that
    has begun finishes even if its caller is cancelled.
    """

    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Run work in one of the threads, in the context of the caller; return its result."""
        called = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, called)

    def close(self) -> None:
        """Stop the threads after their present work, without a wait."""
        self._executor.shutdown(wait=False, cancel_futures=True)
