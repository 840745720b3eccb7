"""Status of the lab: counts of jobs, workers and their replays, database, broker, services."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeVar

import grpc.aio
from celery import Celery
from sqlalchemy import func
from sqlmodel import col, select
from typing_extensions import override

from modnorm.analysis.environments import CANARY, like_of
from modnorm.errors import ModnormError, UnavailableError
from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.states import OPEN, ExperimentState, JobState, Split
from modnorm.services.aggregator.storage.tables import Experiment, Job
from modnorm.services.common.bounded_dict import BoundedDict
from modnorm.services.common.queue import check_broker
from modnorm.services.common.status_servicer import check_service, now, timestamp
from modnorm.v1 import status_pb2, status_pb2_grpc
from modnorm.wire.connection import Credentials


@dataclass(frozen=True, slots=True)
class LabCounts:
    """Counts of jobs and experiments at one time."""

    experiments: Mapping[ExperimentState, int]
    open_jobs: Mapping[tuple[JobState, Split], int]
    """Pending and leased jobs; metrics count the others when they end."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """A worker that holds leases."""

    worker: str
    jobs: int
    last_seen: float
    """Time of its last claim or heartbeat, in seconds since the epoch."""


class LabCountStore:
    """Counts over all experiments; the indexed queries' cost grows with the open jobs."""

    def __init__(self, database: Database, *, lease_seconds: float) -> None:
        self._database = database
        self._lease_seconds = lease_seconds

    def count(self) -> LabCounts:
        """Count experiments by state, and open jobs by state and split."""
        by_state = select(Experiment.state, func.count()).group_by(col(Experiment.state))
        by_split = (
            select(Job.state, Job.split, func.count())
            .where(col(Job.state).in_(OPEN))
            .group_by(col(Job.state), col(Job.split))
        )
        with self._database.read() as session:
            experiments = dict(session.exec(by_state).all())
            jobs = {(state, split): count for state, split, count in session.exec(by_split)}
        return LabCounts(
            {state: experiments.get(state, 0) for state in ExperimentState},
            {(state, split): jobs.get((state, split), 0) for state in OPEN for split in Split},
        )

    def lease_holders(self, limit: int) -> Sequence[LeaseHolder]:
        """Return the workers that hold leases, by name."""
        query = (
            select(Job.worker, func.count(), func.max(Job.lease_deadline))
            .where(Job.state == JobState.LEASED)
            .group_by(col(Job.worker))
            .order_by(col(Job.worker))
            .limit(limit)
        )
        with self._database.read() as session:
            holders = session.exec(query).all()
        return [
            LeaseHolder(worker, jobs, (deadline or 0.0) - self._lease_seconds)
            for worker, jobs, deadline in holders
        ]


MAX_KEPT = 1_000
"""Most workers whose replay is stored."""

Key = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Replay:
    like: Key
    """Environment and request, which determine the answers."""
    canary: str
    time: float


class Canaries:
    """The last replay of each worker; used in one event loop."""

    def __init__(self, lately: float) -> None:
        self._lately = lately
        self._replays: BoundedDict[str, _Replay] = BoundedDict(MAX_KEPT)

    def note(self, worker: str, environment: Mapping[str, str]) -> bool:
        """Store the environment of a report; return whether it is new."""
        canary = environment.get(CANARY)
        if canary is None:
            return False
        known = self._replays.get(worker)
        like = like_of(environment)
        self._replays[worker] = _Replay(like, canary, time.time())
        return known is None or (known.like, known.canary) != (like, canary)

    def deviations(self) -> Mapping[str, str]:
        """Return warnings by worker: for the minority, or for both of two that differ."""
        since = time.time() - self._lately
        alike: dict[Key, dict[str, str]] = {}
        for worker, replay in self._replays.items():
            if replay.time >= since:
                alike.setdefault(replay.like, {})[worker] = replay.canary
        return {
            worker: text for canaries in alike.values() for worker, text in _odd(canaries).items()
        }


def _odd(canaries: Mapping[str, str]) -> Mapping[str, str]:
    """Return warnings for the workers of one environment that differ from the majority."""
    (most, count), *others = Counter(canaries.values()).most_common()
    usual = None if others and others[0][1] == count else most
    told = f"its base answers otherwise than that of others of its environment ({len(canaries)})"
    return {worker: told for worker, canary in canaries.items() if canary != usual}


ResultT = TypeVar("ResultT")

MAX_WORKERS = 1_000
"""Most workers that are stored and displayed."""
RECENT_SECONDS = 600.0
"""Seconds after its last call for which a worker is displayed."""
CHECK_SECONDS = 15.0
"""Timeout of database and broker; afterwards they count as down."""


@dataclass(frozen=True, slots=True)
class _LastClaim:
    version: str
    time: float


class Workers:
    """Workers that recently claimed jobs; used in one event loop."""

    def __init__(self) -> None:
        self._claims: BoundedDict[str, _LastClaim] = BoundedDict(MAX_WORKERS)
        self.canaries = Canaries(RECENT_SECONDS)

    def record_claim(self, name: str, version: str) -> None:
        """Record that an evaluator claimed a job."""
        self._claims[name] = _LastClaim(version, time.time())

    def messages(self, lease_holders: Sequence[LeaseHolder]) -> Sequence[status_pb2.SeenWorker]:
        """Return the workers that recently claimed jobs or hold leases, by name."""
        since, leases = time.time() - RECENT_SECONDS, {one.worker: one for one in lease_holders}
        recent = {name for name, claim in self._claims.items() if claim.time >= since}
        warnings = self.canaries.deviations()
        return [
            self._message(name, leases.get(name), warnings.get(name, ""))
            for name in sorted(recent | leases.keys())
        ]

    def _message(
        self, name: str, holder: LeaseHolder | None, warning: str
    ) -> status_pb2.SeenWorker:
        claim = self._claims.get(name, _LastClaim("", 0.0))
        last = max(claim.time, holder.last_seen if holder else 0.0)
        return status_pb2.SeenWorker(
            name=name,
            jobs=holder.jobs if holder else 0,
            version=claim.version,
            seen=timestamp(last),
            warning=warning,
        )


class LabStatusServicer(status_pb2_grpc.StatusServiceServicer):
    """Reports the status of the lab."""

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
        response = status_pb2.GetStatusResponse(version=version("modnorm"), time=now())
        checks = [self._check_service(name, channel) for name, channel in self._channels.items()]
        dependencies = await asyncio.gather(
            self._check_database(response), self._check_broker(), *checks
        )
        response.dependencies.extend(dependencies)
        return response

    async def _check_service(self, name: str, channel: grpc.aio.Channel) -> status_pb2.Dependency:
        try:
            metadata = self._credentials.metadata()
        except ModnormError as error:
            return status_pb2.Dependency(
                name=name,
                detail=f"the aggregator may not call it: {error.message}",
                remedy="fix MODNORM_TOKEN_FILE of the aggregator",
            )
        return await check_service(name, channel, metadata)

    def _count(self) -> tuple[LabCounts, Sequence[LeaseHolder]]:
        return self._counts.count(), self._counts.lease_holders(MAX_WORKERS)

    async def _check_database(
        self, response: status_pb2.GetStatusResponse
    ) -> status_pb2.Dependency:
        """Fill in counts of the database; return whether it answers."""
        try:
            counts, lease_holders = await _in_time(self._count)
        except UnavailableError as error:
            return status_pb2.Dependency(
                name="database",
                detail=error.message,
                remedy="start the database, or fix MODNORM_DATABASE_URL of the aggregator",
            )
        response.workers.extend(self._workers.messages(lease_holders))
        response.jobs_pending = sum(counts.open_jobs[JobState.PENDING, split] for split in Split)
        return status_pb2.Dependency(name="database", usable=True, detail="answers")

    async def _check_broker(self) -> status_pb2.Dependency:
        try:
            await _in_time(lambda: check_broker(self._app))
        except ModnormError as error:
            return status_pb2.Dependency(
                name="broker",
                detail=error.message,
                remedy="start the broker, or fix MODNORM_BROKER_URL; no job is lost meanwhile",
            )
        return status_pb2.Dependency(name="broker", usable=True, detail="answers")


async def _in_time(check: Callable[[], ResultT]) -> ResultT:
    """Return the result of a function, run in a thread."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(check), CHECK_SECONDS)
    except TimeoutError:
        raise UnavailableError(f"no answer within {CHECK_SECONDS:g} s") from None
