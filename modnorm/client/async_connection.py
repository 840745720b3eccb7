"""A connection to a lab for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Self

import grpc.aio
from tenacity import AsyncRetrying, retry_if_exception_type, stop_before_delay

from modnorm.client.calls import Call, ItemT, Page, ResultT
from modnorm.client.lab_connection import CHANNEL_OPTIONS, SERIALIZE, LabConnection, limit_pause
from modnorm.errors import RateLimitedError
from modnorm.wire.channel import closed_connection, open_async_channel


class AsyncConnection(LabConnection):
    """Makes the calls of `modnorm.client.calls` from one event loop, as `Connection` does.

    It connects at the first call. A cancelled task cancels its call.
    """

    def _open(self) -> None:
        self._in_flight: set[grpc.aio.Call] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Calls in flight and later calls raise PreconditionError."""
        self._is_closed = True
        for waiting in tuple(self._in_flight):  # gRPC overlooks streams that a task waits for
            waiting.cancel()
        if "_opened" in vars(self):
            await self._opened.close(None)

    async def call(self, call: Call[ResultT]) -> ResultT:
        """Make a call; repeat it after the pause of a rate limit, if the deadline allows."""
        method = self._channel.unary_unary(call.path, SERIALIZE, call.read)

        async def attempt() -> ResultT:
            shown, seconds = self._credentials.metadata(), self._seconds(call)
            response = method(call.request, timeout=seconds, metadata=shown)
            with self._tracked(response), self._faults(call):
                result: ResultT = await response
                return result

        return await _admitted(attempt, self._seconds(call))

    async def stream(
        self, call: Call[ResultT], seconds: float | None = None
    ) -> AsyncGenerator[ResultT, None]:
        """Yield the responses of a call; they end after `seconds` at the latest."""
        method = self._channel.unary_stream(call.path, SERIALIZE, call.read)
        responses = method(
            call.request,
            timeout=seconds or self._seconds(call),
            metadata=self._credentials.metadata(),
        )
        with self._tracked(responses), self._faults(call):
            async for response in responses:
                yield response

    async def read(self, call: Call[bytes]) -> bytes:
        """Return the chunks of a stream together."""

        async def attempt() -> bytes:
            return b"".join([chunk async for chunk in self.stream(call)])

        return await _admitted(attempt, self._seconds(call))

    async def pages(self, page: Callable[[str], Call[Page[ItemT]]]) -> AsyncIterator[ItemT]:
        """Yield the items of all pages, one call at a time."""
        token = ""
        while True:
            items, token = await self.call(page(token))
            for item in items:
                yield item
            if not token:
                return

    @property
    def _channel(self) -> grpc.aio.Channel:
        self._check_open()
        return self._opened

    @cached_property
    def _opened(self) -> grpc.aio.Channel:
        return open_async_channel(self._target, self._credentials, CHANNEL_OPTIONS)

    @contextmanager
    def _tracked(self, made: grpc.aio.Call) -> Iterator[None]:
        """Let `close` cancel a call until it is over, and cancel it when its reader leaves."""
        self._in_flight.add(made)
        try:
            yield
        finally:
            self._in_flight.discard(made)
            made.cancel()

    @contextmanager
    def _faults(self, call: Call[ResultT]) -> Iterator[None]:
        """Raise this project's errors; gRPC cancels what waits on a channel that is closed."""
        try:
            with super()._faults(call):
                yield
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._is_closed and not (task and task.cancelling()):
                raise closed_connection() from error
            raise


async def _admitted(attempt: Callable[[], Awaitable[ResultT]], seconds: float) -> ResultT:
    """Make attempts until no rate limit refuses one, or its pause would exceed the deadline."""
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(RateLimitedError),
        wait=limit_pause,
        stop=stop_before_delay(seconds),
        reraise=True,
    )
    return await retrying(attempt)
