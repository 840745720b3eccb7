"""Calls that arrive together, worked on together."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Generic, TypeVar

from modnorm.errors import ModnormError

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

LARGEST_BATCH = 256
GATHER_SECONDS = 0.03
"""From the start of one batch to that of the next: calls that come one by one do not wait. A batch
costs as much as twenty calls, whatever is in it."""

logger = logging.getLogger(__name__)


def _nobody(_request: object, _answer: object) -> None:
    """Hear of no answer."""


class Lane(Generic[RequestT, AnswerT]):
    """Works on requests in batches, in order of arrival, one batch at a time.

    While a batch is worked on, in a thread, others gather for the next: the more there are, the
    less each costs. Lives in one event loop.

    Args:
        thread: Where work is done. Lanes share few: threads that compute at the same time only
            keep each other, and the event loop, waiting.
        work: Returns the answer or the error of each request of a batch; raises nothing.
        told: Hears of each answer that is no error, in the event loop and the context of the
            caller, also when the caller has gone.
        take_back: Hears likewise of those whose caller has gone before it had them. Where it is
            given, nothing is done for callers who are gone before their turn.
    """

    def __init__(
        self,
        thread: Executor,
        work: Callable[[Sequence[RequestT]], Sequence[AnswerT | Exception]],
        told: Callable[[RequestT, AnswerT], None] = _nobody,
        *,
        take_back: Callable[[RequestT, AnswerT], None] | None = None,
    ) -> None:
        self._work = work
        self._told = told
        self._take_back = take_back
        self._thread = thread
        self._waiting: deque[tuple[RequestT, asyncio.Future[AnswerT], Context]] = deque()
        self._driver: asyncio.Task[None] | None = None

    def submit(self, request: RequestT) -> "asyncio.Future[AnswerT]":
        """Have a request answered; what is returned is the answer, or what went wrong instead.

        Who does not wait for it may have been answered all the same; see `take_back`.
        """
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer, copy_context()))
        if self._driver is None:
            self._driver = asyncio.create_task(self._drive())
        return answer

    async def settle(self) -> None:
        """Wait until nothing is worked on, and nothing waits."""
        while self._driver is not None:
            await asyncio.wait([self._driver])

    async def _drive(self) -> None:
        """Work until nobody waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                start = loop.time()
                await self._work_on_batch(loop)
                await asyncio.sleep(start + GATHER_SECONDS - loop.time())
        finally:
            self._driver = None

    async def _work_on_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._next_batch()
        if not batch:
            return
        requests = [request for request, _, _ in batch]
        try:
            answers = await loop.run_in_executor(self._thread, self._work, requests)
        except Exception as error:  # noqa: BLE001 - a defect; nobody may wait for ever
            answers = [error] * len(batch)
        for (request, future, context), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                if not future.done():
                    future.set_exception(answer)
                    future.exception()  # whoever asked may be gone: that is no error to log
                elif not isinstance(answer, ModnormError):
                    logger.error("nobody waits for what failed", exc_info=answer)
                continue
            context.run(self._tell, self._told, request, answer)
            if not future.done():
                future.set_result(answer)
            elif self._take_back is not None:
                context.run(self._tell, self._take_back, request, answer)

    def _next_batch(self) -> list[tuple[RequestT, "asyncio.Future[AnswerT]", Context]]:
        size = min(len(self._waiting), LARGEST_BATCH)
        batch = [self._waiting.popleft() for _ in range(size)]
        if self._take_back is None:
            return batch
        return [one for one in batch if not one[1].done()]

    @staticmethod
    def _tell(
        told: Callable[[RequestT, AnswerT], None], request: RequestT, answer: AnswerT
    ) -> None:
        try:
            told(request, answer)
        except Exception:  # a defect; the others are to be answered all the same
            logger.exception("an answer is not followed up")
