"""Heartbeats: of one lease, or of all that a worker holds in one message."""

import asyncio
from concurrent.futures import Executor

from modnorm.errors import InvalidInputError
from modnorm.v1.evaluation_pb2 import HeartbeatRequest, HeartbeatResponse
from services.aggregator.incoming import MAX_ANSWERS
from services.aggregator.lanes import Lane
from services.aggregator.messages import fill_bar
from services.aggregator.stores.jobs import Beat, JobStore
from services.common.call_names import names_of
from services.common.error_interceptor import described
from services.common.logging import naming

MAX_LEASES = 128
"""Leases in one message: about twice as many as a worker can hold. Such a message is one call to
the rate of its token, and to the store."""
_METHOD = "/modnorm.v1.JobService/Heartbeat"


class Heartbeats:
    """Extends leases, those that are asked about together by one statement.

    Args:
        jobs: Where the leases are.
        thread: Where they are extended.
    """

    def __init__(self, jobs: JobStore, thread: Executor) -> None:
        self._jobs = jobs
        self._lane: Lane[Beat, bool] = Lane(thread, jobs.heartbeat_all)

    async def answer(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        """Extend leases, and tell of each whether its work is still wanted.

        Raises:
            ModnormError: the one lease of the message is not extended; of several, each answer
                says so for itself.
            InvalidInputError: there are too many.
        """
        if not request.also:
            await self._extend(request, response)
            return
        if len(request.also) >= MAX_LEASES:
            raise InvalidInputError(
                f"a message is about {MAX_LEASES} leases at most, not {len(request.also) + 1}",
                field="also",
                remedy="send several",
            )
        others = ((one, response.also.add()) for one in request.also)
        pairs = ((request, response), *others)
        await asyncio.gather(*(self._extend_or_say(one, answer) for one, answer in pairs))

    async def _extend_or_say(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        """Extend one of several leases; fill in why not where it is not."""
        try:
            await self._extend(request, response)
        except Exception as error:  # noqa: BLE001 - every error is the answer about its lease
            with naming(**names_of(request)):
                response.status = described(error, _METHOD).SerializeToString()

    async def _extend(self, request: HeartbeatRequest, response: HeartbeatResponse) -> None:
        if not 0 <= request.answers_done <= MAX_ANSWERS:
            raise InvalidInputError(
                f"a job has at most {MAX_ANSWERS} answers, and no fewer than none",
                field="answers_done",
            )
        lease = request.lease
        beat = Beat(lease.job_id, lease.token, request.answers_done, request.resting)
        response.cancel = await self._lane.submit(beat)
        bar = self._jobs.known_bar(request.experiment_id, request.candidate)
        if bar is not None:
            fill_bar(response.bar, bar)
