"""Attempts at jobs: what begins one, what its end leads to, and how both are told."""

from dataclasses import dataclass
from enum import StrEnum

from sqlmodel import Session, col, select

from modnorm.errors import NotFoundError, StaleLeaseError
from modnorm.search.stopping import Bar
from services.aggregator.rows import AnyJob, CandidateRow, JobRow
from services.aggregator.states import BASE_INDEX, JobState
from services.aggregator.tables import Experiment, Job


class FailureKind(StrEnum):
    """How an attempt failed, as in `modnorm.v1.FailureKind`."""

    INFRASTRUCTURE = "infrastructure"
    CANDIDATE = "candidate"
    FATAL = "fatal"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A worker asks for a job."""

    job_id: str
    worker: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased job and what it is about."""

    job: JobRow
    candidate: CandidateRow
    experiment: Experiment
    bar: Bar | None = None
    """What a candidate has to be able to reach; None where it is scored to its end."""
    skipped: tuple[int, ...] = ()
    """Held-out rows that need no answer, ascending."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker is alive, and has finished some answers of a job."""

    job_id: str
    token: int
    answers_done: int
    resting: bool = False
    """Whether the job is not at the engine."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the end of an attempt led to."""

    experiment_id: str
    pending: tuple[str, ...] = ()
    """Jobs that became pending by it, to be published."""
    job: AnyJob | None = None
    """The job whose attempt ended, as it is now; None when nothing changed."""
    experiment: Experiment | None = None
    """Its experiment, as it is now."""
    kind: FailureKind | None = None
    """How the attempt failed, where its lease expired."""


def find_job(session: Session, job_id: str) -> Job:
    """Return a job.

    Raises:
        NotFoundError: there is none.
    """
    job = session.get(Job, job_id)
    if job is None:
        raise unknown_job(job_id)
    return job


def unknown_job(job_id: str) -> NotFoundError:
    """Return the error of an id that no job has."""
    return NotFoundError(f"there is no job {job_id!r}", field="lease.job_id")


def stale(job: AnyJob) -> StaleLeaseError:
    """Return the error of a lease that is not the job's."""
    return StaleLeaseError(
        f"job {job.id} is {job.state} under lease {job.token}",
        field="lease.token",
        remedy="drop the work: it belongs to someone else, or is not wanted any more",
    )


def pending_jobs(
    session: Session, experiment_id: str | None, limit: int | None = None
) -> tuple[str, ...]:
    """Return the ids of pending jobs, oldest experiment first, in candidate order.

    Args:
        session: The transaction.
        experiment_id: Only those of one experiment.
        limit: Only the first ones.
    """
    query = (
        select(Job.id)
        .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
        .where(Job.state == JobState.PENDING)
        .order_by(col(Experiment.create_time), col(Job.experiment_id), col(Job.candidate))
        .limit(limit)
    )
    if experiment_id is not None:
        query = query.where(Job.experiment_id == experiment_id)
    return tuple(session.exec(query).all())


def pending_of_model(session: Session, model_digest: str, limit: int) -> tuple[str, ...]:
    """Return ids of the first pending jobs of a model's experiments, oldest experiment first."""
    query = (
        select(Job.id)
        .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
        .where(Job.state == JobState.PENDING, Experiment.model_digest == model_digest)
        .order_by(col(Experiment.create_time), col(Job.experiment_id), col(Job.candidate))
        .limit(limit)
    )
    return tuple(session.exec(query).all())


def title(job: AnyJob) -> str:
    """Return what events call a job."""
    who = "base" if job.candidate == BASE_INDEX else f"candidate {job.candidate}"
    return f"{who}, {job.split}"
