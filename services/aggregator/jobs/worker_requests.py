"""Claims and heartbeats of workers, and leased jobs, as data classes."""

from collections.abc import Sequence
from dataclasses import dataclass

from modnorm.errors import StaleLeaseError
from modnorm.search.stopping import Threshold
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased job with its candidate and experiment."""

    job: Job
    candidate: Candidate
    experiment: Experiment
    threshold: Threshold | None = None
    """The score that the candidate must be able to reach; None if all its rows are scored."""
    skipped: Sequence[int] = ()
    """Held-out rows that need no answer, in ascending order."""
    sheets: Sequence[str] = ()
    """Finished jobs with answers to the same rows, for engines that draft."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's message that extends a lease and reports the number of finished answers."""

    job_id: str
    token: int
    answers_done: int
    parked: bool = False
    """Whether the job is parked, not at the engine."""


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The answer to a heartbeat; by default the lease is extended."""

    cancel: bool = False
    """Whether the experiment no longer needs the job."""
    lost: str = ""
    """Why the lease is lost."""
    threshold: Threshold | None = None
    """The present threshold of the candidate; None if all its rows are scored."""


def stale(job: Job) -> StaleLeaseError:
    """Return the error for a lease that is no longer in force."""
    return StaleLeaseError(
        f"job {job.id} is {job.state} under lease {job.token}",
        field="lease.token",
        remedy="drop the job: another worker has it, or the experiment no longer needs it",
    )
