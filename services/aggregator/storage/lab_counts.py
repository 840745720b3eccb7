"""Counts of jobs, experiments and lease holders, for metrics and the lab's status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func
from sqlmodel import col, select

from modnorm.services.aggregator.storage.database import Database
from modnorm.services.aggregator.storage.states import OPEN, ExperimentState, JobState, Split
from modnorm.services.aggregator.storage.tables import Experiment, Job


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
