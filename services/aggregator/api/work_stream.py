"""The `Work` streams, one per worker: messages carry calls and are answered in order."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast

from modnorm.errors import InvalidInputError, ModnormError, UnavailableError
from modnorm.services.common.call_interceptor import described, names_of
from modnorm.services.common.logging import naming
from modnorm.services.common.metrics import CallMetrics
from modnorm.services.common.shielded_tasks import ShieldedTasks
from modnorm.v1.evaluation_pb2 import Call, Reply, WorkRequest, WorkResponse
from modnorm.wire.status import code_of

SERVICE = "modnorm.v1.JobService"
MAX_CALLS = 128
"""Most calls in one message: about twice the number of leases that a worker can hold."""
_METHODS = {
    "claim": "ClaimJob",
    "heartbeat": "Heartbeat",
    "report": "ReportJob",
    "fail": "FailJob",
    "trained": "ReportTraining",
    None: "Work",
}
"""The name of each kind of call in metrics, logs and traces."""


@dataclass(slots=True)
class CallingWorker:
    """The worker that made a call."""

    has_left: bool = False


Answer = Callable[[Call, Reply, CallingWorker], Awaitable[None]]
"""Fills in the reply to a call, or raises the error of a refused call."""


class WorkStreams:
    """All open streams of workers; used in one event loop.

    A shielded task answers the calls of a message: they are stored and followed up even if the
    worker disconnects. A stream would outlast any stop of the server, so `close` ends it.
    """

    def __init__(
        self,
        answer: Answer,
        undelivered: Callable[[Reply], None],
        measured: CallMetrics,
        tasks: ShieldedTasks,
    ) -> None:
        self._answer = answer
        self._undelivered = undelivered
        self._measured = measured
        self._tasks = tasks
        self._idle: set[asyncio.Task[object]] = set()
        self._closing = False

    def close(self) -> None:
        """End idle streams now and other streams after their next response; refuse new ones."""
        self._closing = True
        for task in self._idle:
            task.cancel()

    async def serve(self, messages: AsyncIterable[WorkRequest]) -> AsyncIterator[WorkResponse]:
        """Yield the response to each message of one worker.

        Raises:
            UnavailableError: the aggregator is stopping.
            InvalidInputError: a message has no calls or too many.
        """
        arriving, task = aiter(messages), cast("asyncio.Task[object]", asyncio.current_task())
        while (message := await self._next(arriving, task)) is not None:
            yield await self._respond(message)

    async def _next(
        self, messages: AsyncIterator[WorkRequest], task: asyncio.Task[object]
    ) -> WorkRequest | None:
        """Return the next message; None after the last."""
        if self._closing:
            raise _stopping()
        self._idle.add(task)
        try:
            return await anext(messages, None)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            raise _stopping() from None
        finally:
            self._idle.discard(task)

    async def _respond(self, message: WorkRequest) -> WorkResponse:
        """Answer the calls of one message concurrently."""
        if not 1 <= len(message.calls) <= MAX_CALLS:
            raise InvalidInputError(
                f"a message must have 1 to {MAX_CALLS} calls, not {len(message.calls)}",
                field="calls",
                remedy="send several messages",
            )
        response, worker = WorkResponse(), CallingWorker()
        replies = [response.replies.add() for _ in message.calls]
        pairs = zip(message.calls, replies, strict=True)
        answered = self._answer_all([self._reply(*pair, worker) for pair in pairs])
        try:
            await self._tasks.run(answered, lambda _: self._lose(replies))
        except asyncio.CancelledError:
            worker.has_left = True
            raise
        return response

    @staticmethod
    async def _answer_all(answers: list[Awaitable[None]]) -> None:
        await asyncio.gather(*answers)

    def _lose(self, replies: list[Reply]) -> None:
        for reply in replies:
            self._undelivered(reply)

    async def _reply(self, call: Call, reply: Reply, worker: CallingWorker) -> None:
        """Fill in the reply to one call; an error is a reply too."""
        kind = call.WhichOneof("request")
        method, code, start = _METHODS[kind], "OK", time.perf_counter()
        with naming(**_names(call, kind)):
            try:
                await self._answer(call, reply, worker)
            except Exception as error:  # noqa: BLE001 - every error is the reply to its call
                code = code_of(error).name if isinstance(error, ModnormError) else "INTERNAL"
                reply.status = described(error, f"/{SERVICE}/{method}").SerializeToString()
        self._measured.ended(SERVICE, method, code, time.perf_counter() - start)


def _names(call: Call, kind: str | None) -> Mapping[str, str | int]:
    """Return the ids in a call by their names in the log."""
    if kind is None or (kind == "report" and not call.report.parts):
        return {}
    return names_of(call.report.parts[0] if kind == "report" else getattr(call, kind))


def _stopping() -> UnavailableError:
    return UnavailableError("the aggregator is stopping", remedy="try again")
