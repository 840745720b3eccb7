"""Status of the lab: database, broker, other services and workers."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

import grpc.aio
from celery import Celery
from typing_extensions import override

from modnorm.errors import ModnormError, UnavailableError
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.channel import Credentials
from services.aggregator.jobs.replay_canaries import Canaries
from services.aggregator.storage.lab_counts import LabCounts, LabCountStore, LeaseHolder
from services.aggregator.storage.states import JobState
from services.common.queue import queued
from services.common.status_servicer import look_at_service, now, timestamp

FoundT = TypeVar("FoundT")

MAX_WORKERS = 1_000
"""Workers that are remembered and shown."""
LATELY = 600.0
"""Seconds for which a worker is shown after its last call."""
LOOK_SECONDS = 15.0
"""Timeout of database and broker; one that hangs counts as down."""


@dataclass(frozen=True, slots=True)
class _Heard:
    version: str
    time: float


class Workers:
    """Workers that asked for jobs lately; used in one event loop."""

    def __init__(self) -> None:
        self._heard: OrderedDict[str, _Heard] = OrderedDict()
        self.canaries = Canaries(LATELY)

    def heard(self, name: str, version: str) -> None:
        """Note that a worker asked for a job."""
        self._heard[name] = _Heard(version, time.time())
        self._heard.move_to_end(name)
        if len(self._heard) > MAX_WORKERS:
            self._heard.popitem(last=False)

    def seen(self, lease_holders: Sequence[LeaseHolder]) -> Sequence[status_pb2.SeenWorker]:
        """Return those heard lately and those that hold leases, by name."""
        since, leases = time.time() - LATELY, {one.worker: one for one in lease_holders}
        recent = {name for name, heard in self._heard.items() if heard.time >= since}
        odd = self.canaries.deviations()
        return [
            self._message(name, leases.get(name), odd.get(name, ""))
            for name in sorted(recent | leases.keys())
        ]

    def _message(
        self, name: str, holder: LeaseHolder | None, warning: str
    ) -> status_pb2.SeenWorker:
        heard = self._heard.get(name, _Heard("", 0.0))
        last = max(heard.time, holder.heard if holder else 0.0)
        return status_pb2.SeenWorker(
            name=name,
            jobs=holder.jobs if holder else 0,
            version=heard.version,
            seen=timestamp(last),
            warning=warning,
        )


class LabStatusServicer(status_pb2_grpc.StatusServiceServicer):
    """Answers calls about the status of the lab.

    Args:
        counts: Counts what is in the database.
        app: The Celery application.
        neighbours: Channels by the name of a service.
        shown: Holds the token that calls carry.
        workers: Who was heard.
    """

    def __init__(
        self,
        counts: LabCountStore,
        app: Celery,
        neighbours: Mapping[str, grpc.aio.Channel],
        shown: Credentials,
        workers: Workers,
    ) -> None:
        self._counts = counts
        self._app = app
        self._neighbours = neighbours
        self._shown = shown
        self._workers = workers

    @override
    async def GetStatus(
        self,
        request: status_pb2.GetStatusRequest,
        context: grpc.aio.ServicerContext[
            status_pb2.GetStatusRequest, status_pb2.GetStatusResponse
        ],
    ) -> status_pb2.GetStatusResponse:
        """Check everything at once; a dependency that is down is an entry and no error."""
        response = status_pb2.GetStatusResponse(version=version("modnorm"), time=now())
        looks = [self._look_at(name, channel) for name, channel in self._neighbours.items()]
        found = await asyncio.gather(self._count(response), self._look_at_broker(), *looks)
        response.dependencies.extend(found)
        return response

    async def _look_at(self, name: str, channel: grpc.aio.Channel) -> status_pb2.Dependency:
        try:
            metadata = self._shown.metadata()
        except ModnormError as error:
            return status_pb2.Dependency(
                name=name,
                detail=f"the aggregator may not call it: {error.message}",
                remedy="mend MODNORM_TOKEN_FILE of the aggregator",
            )
        return await look_at_service(name, channel, metadata)

    def _look(self) -> tuple[LabCounts, Sequence[LeaseHolder]]:
        return self._counts.count(), self._counts.lease_holders(MAX_WORKERS)

    async def _count(self, response: status_pb2.GetStatusResponse) -> status_pb2.Dependency:
        """Fill in the counts of the database; return whether it answers."""
        try:
            counts, lease_holders = await _in_time(self._look)
        except UnavailableError as error:
            return status_pb2.Dependency(
                name="database",
                detail=error.message,
                remedy="start the database, or mend MODNORM_DATABASE_URL of the aggregator",
            )
        response.workers.extend(self._workers.seen(lease_holders))
        response.jobs_pending = sum(
            count for (state, _), count in counts.open_jobs.items() if state is JobState.PENDING
        )
        return status_pb2.Dependency(name="database", usable=True, detail="answers")

    async def _look_at_broker(self) -> status_pb2.Dependency:
        try:
            count = await _in_time(lambda: queued(self._app))
        except ModnormError as error:
            return status_pb2.Dependency(
                name="broker",
                detail=error.message,
                remedy="start the broker, or mend MODNORM_BROKER_URL; nothing is lost meanwhile",
            )
        return status_pb2.Dependency(name="broker", usable=True, detail=f"{count} messages wait")


async def _in_time(look: Callable[[], FoundT]) -> FoundT:
    """Return the result of a function, run in a thread.

    Raises:
        UnavailableError: it takes too long; the thread is left to itself.
    """
    try:
        return await asyncio.wait_for(asyncio.to_thread(look), LOOK_SECONDS)
    except TimeoutError:
        raise UnavailableError(f"no answer within {LOOK_SECONDS:g} s") from None
