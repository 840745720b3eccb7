"""The Python client of a lab for asyncio: the methods and results of `Client`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc.aio
from tenacity import AsyncRetrying, retry_if_exception_type, stop_before_delay

from modnorm.analysis.listing import AsyncListing
from modnorm.client import watch as watching
from modnorm.client.calls import (
    Call,
    ItemT,
    Page,
    ResultT,
    cancel_experiment,
    create_experiment,
    get_experiment,
    list_candidates,
    list_experiments,
)
from modnorm.client.client import Client
from modnorm.client.experiments import (
    Event,
    Experiment,
    ExperimentSummary,
    event_from_message,
    experiment_from_message,
    summary_from_message,
)
from modnorm.client.finished import check_succeeded
from modnorm.client.lab_connection import CHANNEL_OPTIONS, SERIALIZE, LabConnection, limit_pause
from modnorm.errors import ModnormError, RateLimitedError
from modnorm.spec import ExperimentSpec
from modnorm.wire.channel import closed_connection, open_async_channel

if TYPE_CHECKING:
    from modnorm.analysis.run import Run
    from modnorm.client.async_run import AsyncRun


class AsyncClient(LabConnection):
    """A connection to a lab from one event loop; it connects at the first call.

    A cancelled task cancels its call. `call`, `stream`, `read` and `pages` are those of `Client`.
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

    async def submit(
        self, spec: ExperimentSpec | Path | str, request_id: str | None = None
    ) -> Experiment:
        """Create an experiment, with the arguments and errors of `Client.submit`."""
        call = await asyncio.to_thread(create_experiment, spec, request_id)  # it reads files
        return experiment_from_message(await self.call(call))

    async def get(self, experiment_id: str) -> Experiment:
        """Return an experiment with the results it has so far."""
        return experiment_from_message(await self.call(get_experiment(experiment_id)))

    def list(self) -> AsyncListing[ExperimentSummary]:
        """Return all experiments, newest first, without their results."""
        return AsyncListing(ExperimentSummary, self._summaries)

    async def watch(self, experiment_id: str, cursor: int = 0) -> AsyncIterator[Event]:
        """Yield events after `cursor` until the experiment ends, as `Client.watch` does."""
        watch = watching.Watch(experiment_id, cursor, self.patience)
        while True:
            try:
                async with aclosing(self.stream(watch.call(), watching.STREAM_SECONDS)) as events:
                    async for event in events:
                        watch.note(event)
                        yield event_from_message(event)
                watch.check_end()
            except ModnormError as error:
                pause = watch.pause(error)
            else:
                return
            await asyncio.sleep(pause)

    async def cancel(self, experiment_id: str) -> Experiment:
        """Ask an experiment to stop; repeating it changes nothing."""
        return experiment_from_message(await self.call(cancel_experiment(experiment_id)))

    async def run(self, experiment_id: str) -> "AsyncRun":
        """Return a finished experiment; its answers and votes are read from the lab when needed.

        Raises:
            PreconditionError: it has not succeeded.
        """
        from modnorm.client.async_run import AsyncLabRun  # noqa: PLC0415 - loads numpy

        experiment = await self.call(get_experiment(experiment_id))
        check_succeeded(experiment)
        candidates = [each async for each in self.pages(partial(list_candidates, experiment_id))]
        return AsyncLabRun(self, experiment, candidates).run

    async def download(self, experiment_id: str, directory: Path | str) -> "Run":
        """Write the directory of a finished experiment and return the run in it.

        A thread writes it, over a connection of its own; a cancelled task closes that.

        Raises:
            PreconditionError: it has not succeeded.
            ConflictError: the directory holds something else, or another process works in it.
        """
        self._check_open()
        with Client(
            self._target,
            timeout=self._timeout,
            patience=self.patience,
            credentials=self._credentials,
        ) as client:
            return await asyncio.to_thread(client.download, experiment_id, directory)

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

    async def _summaries(self) -> AsyncIterator[ExperimentSummary]:
        async for message in self.pages(list_experiments):
            yield summary_from_message(message)

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
