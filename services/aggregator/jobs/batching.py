"""Batches of calls that arrive together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

LARGEST_BATCH = 256
GATHER_SECONDS = 0.03
"""Seconds from the start of one batch to the start of the next. A single call does not wait. The
fixed cost of a batch equals that of twenty calls."""


class Batcher(Generic[RequestT, AnswerT]):
    """Processes requests in batches, in order of arrival, one batch at a time.

    While a thread processes a batch, further requests are queued for the next one. So requests
    cost less the more of them there are. Used in one event loop.

    Args:
        thread: Processes batches. Batchers share few threads, since threads that compute block
            each other and the event loop.
        work: Returns the answer or the error of each request of a batch; never raises.
    """

    def __init__(
        self,
        thread: Executor,
        work: Callable[[Sequence[RequestT]], Sequence[AnswerT | Exception]],
    ) -> None:
        self._work = work
        self._thread = thread
        self._waiting: deque[tuple[RequestT, asyncio.Future[AnswerT]]] = deque()
        self._driver: asyncio.Task[None] | None = None

    async def submit(self, request: RequestT) -> AnswerT:
        """Return the answer to a request, or raise its error.

        A request may be answered even if its caller is cancelled; see `ShieldedTasks`.
        """
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive())
        return await answer

    async def _drive(self) -> None:
        """Process batches until the queue is empty."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                start = loop.time()
                await self._work_on_batch(loop)
                await asyncio.sleep(start + GATHER_SECONDS - loop.time())
        finally:
            self._driver = None

    async def _work_on_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        size = min(len(self._waiting), LARGEST_BATCH)
        requests, futures = zip(*(self._waiting.popleft() for _ in range(size)), strict=True)
        try:
            answers = await loop.run_in_executor(self._thread, self._work, requests)
        except Exception as error:  # noqa: BLE001 - every caller of the batch gets it
            answers = [error] * size
        for future, answer in zip(futures, answers, strict=True):
            if future.cancelled():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
