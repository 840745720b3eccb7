"""Threads for work that takes minutes, separate from the default threads of asyncio."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")


class SlowThreads:
    """A few threads for calls that wait for downloads or uploads.

    `asyncio.to_thread` has few threads for all calls, and transfers would block them. Work that
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
