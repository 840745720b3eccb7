"""Threads for what may take minutes, apart from those that all calls of a process share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")


class SlowThreads:
    """A few threads where calls wait for downloads, and for nobody but each other.

    `asyncio.to_thread` has four threads more than there are cores, for everything: as many
    downloads would stop the process. What its caller has left goes on to its end, and what has not
    begun by then never does.

    Args:
        count: How many there are; others wait in order.
        name: What they are called.
    """

    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(
        self, work: Callable[ParamsT, ResultT], *args: ParamsT.args, **kwargs: ParamsT.kwargs
    ) -> ResultT:
        """Return what some work returns in one of the threads, in the context of the caller."""
        called = partial(copy_context().run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, called)

    def close(self) -> None:
        """Begin nothing any more; what is under way nobody waits for."""
        self._executor.shutdown(wait=False, cancel_futures=True)
