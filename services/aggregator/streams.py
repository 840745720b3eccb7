"""The streams of workers: one a worker, each call answered in order."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from typing import NoReturn, cast

from modnorm.errors import ModnormError, UnavailableError
from modnorm.v1.evaluation_pb2 import WorkRequest, WorkResponse
from modnorm.wire.status import code_of
from services.aggregator.background import LeftWork
from services.common.call_names import names_of
from services.common.error_interceptor import described
from services.common.logging import naming
from services.common.metrics import CallMetrics

SERVICE = "modnorm.v1.JobService"
_METHODS = {
    "claim": "ClaimJob",
    "heartbeat": "Heartbeat",
    "report": "ReportJob",
    "fail": "FailJob",
    None: "Work",
}
"""What each call is counted as, and what it is by itself."""

Answer = Callable[[WorkRequest, WorkResponse], Awaitable[object]]
"""Begins to answer a call, or raises why not; what it returns fills in the answer, or raises why
not, and is always waited for."""


class WorkStreams:
    """All streams of workers that are open; used in one event loop.

    Calls on a stream cost half of what they cost one by one. Streams would outlast any stop: those
    that wait for their worker's next call are ended, the others once their call is answered.

    Args:
        answer: Answers one call.
        measured: Where calls are counted.
        left: Goes on with calls whose worker has gone.
        lost: Hears of a message whose first call is answered, and whose worker goes before it has
            the answer.
    """

    def __init__(
        self,
        answer: Answer,
        measured: CallMetrics,
        left: LeftWork,
        lost: Callable[[WorkResponse], None],
    ) -> None:
        self._answer = answer
        self._measured = measured
        self._left = left
        self._lost = lost
        self._idle: set[asyncio.Task[object]] = set()
        self._closing = False

    def close(self) -> None:
        """End all streams as soon as no call on them waits for its answer; open no others."""
        self._closing = True
        for task in self._idle:
            task.cancel()

    async def serve(self, calls: AsyncIterable[WorkRequest]) -> AsyncIterator[WorkResponse]:
        """Yield the answer to each call of one worker.

        Raises:
            UnavailableError: the aggregator stops.
        """
        arriving, task = aiter(calls), cast("asyncio.Task[object]", asyncio.current_task())
        while (call := await self._next(arriving, task)) is not None:
            response = WorkResponse()
            await self._answer_all(call, response)
            yield response

    async def _next(
        self, calls: AsyncIterator[WorkRequest], task: asyncio.Task[object]
    ) -> WorkRequest | None:
        """Wait in a task for the next call; None after the last."""
        if self._closing:
            raise _stopping()
        self._idle.add(task)
        try:
            return await anext(calls, None)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            raise _stopping() from None
        finally:
            self._idle.discard(task)

    async def _answer_all(self, call: WorkRequest, response: WorkResponse) -> None:
        """Answer a call, and the one that it carries beside itself: both are begun at once.

        The second is waited for and counted also where who asked has gone meanwhile.
        """
        begun = self._begin(call, response)
        if not call.HasField("also"):
            await begun.finish()
            return
        also = self._begin(call.also, response.also)
        try:
            await begun.finish()
        except asyncio.CancelledError:
            self._left.keep(also.finish())
            raise
        try:
            await also.finish()
        except asyncio.CancelledError:
            self._lost(response)
            raise

    def _begin(self, call: WorkRequest, response: WorkResponse) -> "_Begun":
        return _Begun(self._answer, self._measured, call, response)


class _Begun:
    """One call on a stream, begun to be answered; a task a call would cost more than many do."""

    __slots__ = ("_call", "_measured", "_response", "_start", "_work")

    def __init__(
        self, answer: Answer, measured: CallMetrics, call: WorkRequest, response: WorkResponse
    ) -> None:
        self._call, self._response, self._measured = call, response, measured
        self._start = time.perf_counter()
        try:
            self._work = answer(call, response)
        except Exception as error:  # noqa: BLE001 - every error is the answer to its call
            self._work = _failed(error)

    async def finish(self) -> None:
        """Fill in the answer, if only why there is none: the stream goes on."""
        method, code = _METHODS[self._call.WhichOneof("call")], "OK"
        try:
            await self._work
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except Exception as error:  # noqa: BLE001 - every error is the answer to its call
            code = code_of(error).name if isinstance(error, ModnormError) else "INTERNAL"
            with naming(**_names(self._call)):
                status = described(error, f"/{SERVICE}/{method}")
            self._response.status = status.SerializeToString()
        finally:
            self._measured.ended(SERVICE, method, code, time.perf_counter() - self._start)


async def _failed(error: Exception) -> NoReturn:
    raise error


def _names(call: WorkRequest) -> Mapping[str, str | int]:
    """Return the ids in a call, as the log names them."""
    kind = call.WhichOneof("call")
    if kind is None or (kind == "report" and not call.report.parts):
        return {}
    return names_of(call.report.parts[0] if kind == "report" else getattr(call, kind))


def _stopping() -> UnavailableError:
    return UnavailableError("the aggregator is stopping", remedy="try again")
