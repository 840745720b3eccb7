"""Requests of workers about jobs, and leased jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.errors import StaleLeaseError
from modnorm.search.stopping import Threshold
from services.aggregator.storage.tables import Candidate, Experiment, Job


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A worker asks for a job."""

    job_id: str
    worker: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased job with its candidate and experiment."""

    job: Job
    candidate: Candidate
    experiment: Experiment
    bar: Threshold | None = None
    """The bar that the candidate must be able to reach; None if it is scored to its end."""
    skipped: Sequence[int] = ()
    """Held-out rows that need no answer, ascending."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: a worker still has a lease, and has finished some answers."""

    job_id: str
    token: int
    answers_done: int
    resting: bool = False
    """Whether the job is parked, and not at the engine."""


def stale(job: Job) -> StaleLeaseError:
    """Return the error for a lease that the job does not have."""
    return StaleLeaseError(
        f"job {job.id} is {job.state} under lease {job.token}",
        field="lease.token",
        remedy="drop the work: it belongs to someone else, or is not wanted any more",
    )
