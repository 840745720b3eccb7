"""Several services in the event loop of one thread, for labs in one process."""

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import AsyncExitStack
from typing import Generic, TypeVar

from modnorm.errors import ModnormError
from modnorm.services.common.service_process import Service

ANY_PORT = "127.0.0.1:0"
"""A free port of this machine, which other machines do not reach."""

StartedT = TypeVar("StartedT")


class ServiceThread(ABC, Generic[StartedT]):
    """Serves in the thread that calls `run`."""

    def __init__(self) -> None:
        self.started: Future[StartedT] = Future()
        """What `_start` returned, or the error that it raised."""
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._fault: ModnormError | None = None

    def run(self) -> None:
        """Serve until `stop` is called."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        """End `run`; may be called from any thread, more than once."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)

    def _break_down(self, fault: ModnormError) -> None:
        """End `run` with the first error; may be called from any thread."""
        self._fault = self._fault or fault
        self.stop()

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                self.started.set_result(await self._start(stack))
            except BaseException as error:
                self.started.set_exception(error)
                raise
            await self._stopping.wait()
            if self._fault is not None:
                raise self._fault

    @abstractmethod
    async def _start(self, stack: AsyncExitStack) -> StartedT:
        """Start the services; the stack stops them."""


async def start_service(service: Service, stack: AsyncExitStack) -> str:
    """Start a service, stopped by the stack, and return its address."""
    await service.start()
    stack.push_async_callback(service.stop)
    return f"127.0.0.1:{service.port}"
