"""Status of the lab: counts of jobs, workers and their replays, database, broker, services."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import grpc.aio
from celery import Celery
from sqlalchemy import func
from sqlmodel import col, select
from typing_extensions import override

from modnorm import __version__
from modnorm.analysis.environments import CANARY, like_of
from modnorm.errors import ForbiddenError, ModnormError, UnauthenticatedError
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.tables import (
    OPEN,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Split,
)
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.common.queue import check_broker
from modnorm.services.common.status_servicer import now, timestamp
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.connection import Credentials
from modnorm.wire.status import from_rpc_error

AnswerT = TypeVar("AnswerT")


class LabCountStore:
    """Counts over all experiments; the indexed queries' cost grows with the open jobs."""

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds

    def count(self) -> tuple[Mapping[ExperimentState, int], Mapping[tuple[JobState, Split], int]]:
        """Count experiments by state, and open jobs by state and split.

        Metrics count the other jobs when they end.
        """
        by_state = select(Experiment.state, func.count()).group_by(col(Experiment.state))
        by_split = (
            select(Job.state, Job.split, func.count())
            .where(col(Job.state).in_(OPEN))
            .group_by(col(Job.state), col(Job.split))
        )
        with self._database.read() as session:
            experiments = dict(session.exec(by_state).all())
            jobs = {(state, split): count for state, split, count in session.exec(by_split)}
        return (
            {state: experiments.get(state, 0) for state in ExperimentState},
            {(state, split): jobs.get((state, split), 0) for state in OPEN for split in Split},
        )

    def lease_holders(self, limit: int) -> Mapping[str, tuple[int, float]]:
        """Return the leases of each worker that holds some, and the time of its last call."""
        query = (
            select(Job.worker, func.count(), func.max(Job.lease_deadline))
            .where(Job.state == JobState.LEASED)
            .group_by(col(Job.worker))
            .order_by(col(Job.worker))
            .limit(limit)
        )
        with self._database.read() as session:
            return {
                worker: (jobs, (deadline or 0.0) - self._lease_seconds)
                for worker, jobs, deadline in session.exec(query)
            }


MAX_KEPT = 1_000
"""Most workers whose replay is stored."""

Key = frozenset[tuple[str, str]]


class Canaries:
    """The last replay of each worker; used in one event loop."""

    def __init__(self, lately: float) -> None:
        self._lately = lately
        self._replays: BoundedDict[str, tuple[Key, str, float]] = BoundedDict(MAX_KEPT)
        """By worker: environment and request, which determine the answers; digest; time."""

    def note(self, worker: str, environment: Mapping[str, str]) -> None:
        """Store the replay that the environment of a report names, if any."""
        canary = environment.get(CANARY)
        if canary is not None:
            self._replays[worker] = like_of(environment), canary, time.time()

    def deviations(self) -> Mapping[str, str]:
        """Return warnings by worker: for the minority, or for both of two that differ."""
        since = time.time() - self._lately
        alike: dict[Key, dict[str, str]] = {}
        for worker, (like, canary, noted) in self._replays.items():
            if noted >= since:
                alike.setdefault(like, {})[worker] = canary
        warnings: dict[str, str] = {}
        for canaries in alike.values():
            (most, count), *others = Counter(canaries.values()).most_common()
            usual = None if others and others[0][1] == count else most
            text = (
                "its base answers otherwise than that of others of its environment "
                f"({len(canaries)})"
            )
            warnings |= {worker: text for worker, canary in canaries.items() if canary != usual}
        return warnings


MAX_WORKERS = 1_000
"""Most workers that are stored and displayed."""
RECENT_SECONDS = 600.0
"""Seconds after its last call for which a worker is displayed."""
STATUS_SECONDS = 20.0
"""Deadline of a service's status; a sandbox measures its isolation meanwhile."""
CHECK_SECONDS = 15.0
"""Timeout of database and broker; afterwards they count as down."""


class Workers:
    """Workers that recently claimed jobs; used in one event loop."""

    def __init__(self) -> None:
        self._claims: BoundedDict[str, tuple[str, float]] = BoundedDict(MAX_WORKERS)
        """Version and time of the last claim, by worker."""
        self.canaries = Canaries(RECENT_SECONDS)

    def record_claim(self, name: str, version: str) -> None:
        self._claims[name] = version, time.time()

    def messages(self, leases: Mapping[str, tuple[int, float]]) -> Sequence[status_pb2.SeenWorker]:
        """Return the workers that recently claimed jobs or hold leases, by name."""
        since = time.time() - RECENT_SECONDS
        recent = {name for name, (_, claimed) in self._claims.items() if claimed >= since}
        warnings = self.canaries.deviations()
        messages = []
        for name in sorted(recent | leases.keys()):
            jobs, last_seen = leases.get(name, (0, 0.0))
            version, claimed = self._claims.get(name, ("", 0.0))
            messages.append(
                status_pb2.SeenWorker(
                    name=name,
                    jobs=jobs,
                    version=version,
                    seen=timestamp(max(claimed, last_seen)),
                    warning=warnings.get(name, ""),
                )
            )
        return messages


class LabStatusServicer(status_pb2_grpc.StatusServiceServicer):
    def __init__(
        self,
        counts: LabCountStore,
        app: Celery,
        channels: Mapping[str, grpc.aio.Channel],
        credentials: Credentials,
        workers: Workers,
    ) -> None:
        self._counts = counts
        self._app = app
        self._channels = channels
        self._credentials = credentials
        self._workers = workers

    @override
    async def GetStatus(
        self, request: status_pb2.GetStatusRequest, context: object
    ) -> status_pb2.GetStatusResponse:
        """Check all dependencies concurrently; the entry of each states whether it is usable."""

        def count() -> tuple[Mapping[str, tuple[int, float]], int]:
            holders, (_, jobs) = self._counts.lease_holders(MAX_WORKERS), self._counts.count()
            return holders, sum(jobs[JobState.PENDING, split] for split in Split)

        checks = (self._check_service(name, channel) for name, channel in self._channels.items())
        (database, counted), (broker, _), services = await asyncio.gather(
            _check("database", count, "start the database, or fix MODNORM_DATABASE_URL"),
            _check(
                "broker",
                partial(check_broker, self._app),
                "start the broker, or fix MODNORM_BROKER_URL; no job is lost meanwhile",
            ),
            asyncio.gather(*checks),
        )
        response = status_pb2.GetStatusResponse(
            version=__version__, time=now(), dependencies=[database, broker, *services]
        )
        if counted is not None:
            holders, response.jobs_pending = counted
            response.workers.extend(self._workers.messages(holders))
        return response

    async def _check_service(self, name: str, channel: grpc.aio.Channel) -> status_pb2.Dependency:
        """Return the status of a service, which is usable if all its dependencies are."""
        try:
            metadata = self._credentials.metadata()
        except ModnormError as error:
            return status_pb2.Dependency(
                name=name,
                detail=f"the aggregator may not call it: {error.message}",
                remedy="fix MODNORM_TOKEN_FILE of the aggregator",
            )
        stub = status_pb2_grpc.StatusServiceStub(channel)
        request = status_pb2.GetStatusRequest()
        try:
            status = await stub.GetStatus(request, timeout=STATUS_SECONDS, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            met = from_rpc_error(error)
            remedy = (
                "set MODNORM_TOKEN_FILE of the aggregator to a token with the role internal"
                if isinstance(met, UnauthenticatedError | ForbiddenError)
                else f"start the {name}, or fix its address in the aggregator's settings; "
                "its log contains other errors"
            )
            return status_pb2.Dependency(name=name, detail=str(met), remedy=remedy)
        unusable = [one for one in status.dependencies if not one.usable]
        return status_pb2.Dependency(
            name=name,
            usable=not unusable,
            detail="; ".join(f"{one.name}: {one.detail}" for one in unusable) or "answers",
            remedy="; ".join(one.remedy for one in unusable),
            version=status.version,
        )


async def _check(
    name: str, check: Callable[[], AnswerT], remedy: str
) -> tuple[status_pb2.Dependency, AnswerT | None]:
    """Return whether a dependency answers in time, and its answer; the check runs in a thread."""
    try:
        answer = await asyncio.wait_for(asyncio.to_thread(check), CHECK_SECONDS)
    except TimeoutError:
        detail = f"no answer within {CHECK_SECONDS:g} s"
    except ModnormError as error:
        detail = error.message
    else:
        return status_pb2.Dependency(name=name, usable=True, detail="answers"), answer
    return status_pb2.Dependency(name=name, detail=detail, remedy=remedy), None
