"""Claims, heartbeats and extensions of leases.

These transactions lock jobs without their experiments. So they skip jobs that another transaction
has locked: a wait could deadlock.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlmodel import Session, col, exists, select

from modnorm.errors import StaleLeaseError
from modnorm.services.aggregator.storage.lookups import is_candidate_of_job, unknown_job
from modnorm.services.aggregator.storage.tables import (
    Candidate,
    Experiment,
    ExperimentState,
    Job,
    JobState,
)
from modnorm.v1.evaluation_pb2 import ClaimJobRequest, LeaseProgress, LeaseState


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased job with its candidate and experiment."""

    job: Job
    candidate: Candidate
    experiment: Experiment


def stale(job: Job) -> StaleLeaseError:
    """Return the error for a lease that is no longer in force."""
    return StaleLeaseError(
        f"job {job.id} is {job.state} under lease {job.token}",
        field="lease.token",
        remedy="drop the job: another worker has it, or the experiment no longer needs it",
    )


def lease_jobs(
    session: Session, asked: Sequence[ClaimJobRequest], deadline: float
) -> Sequence[Claim | None]:
    """Lease the next jobs under new fencing tokens, as for one request after the other.

    Experiments of the model that a worker has loaded go first, then older ones. Within an
    experiment, jobs that have failed go last. A request gets None if no pending job is free.
    """
    claims: list[Claim | None] = []
    for (model_digest, unfit), equal in groupby(
        asked, lambda one: (one.model_digest, tuple(one.unfit_experiments))
    ):
        workers = [one.worker for one in equal]
        found = _next_jobs(session, model_digest, unfit, len(workers))
        for worker, claim in zip(workers, found, strict=False):
            lease(claim.job, worker, deadline)
            claims.append(claim)
        claims += [None] * (len(workers) - len(found))
    return claims


def lease(job: Job, worker: str, deadline: float) -> None:
    """Lease a locked job under a new fencing token."""
    job.state, job.token, job.worker = JobState.LEASED, job.token + 1, worker
    job.lease_deadline, job.answers_done, job.waits = deadline, 0, False


def _next_jobs(
    session: Session, model_digest: str, unfit: Collection[str], count: int
) -> list[Claim]:
    """Lock the next jobs to lease, `count` at most."""
    has_pending = exists().where(
        col(Job.state) == JobState.PENDING, col(Job.experiment_id) == Experiment.id
    )
    experiments = (
        select(Experiment.id)
        .where(
            col(Experiment.state).in_((ExperimentState.SELECTING, ExperimentState.VOTING)),
            col(Experiment.id).not_in(unfit),
            has_pending,
        )
        .order_by(
            col(Experiment.model_digest) != model_digest,
            col(Experiment.create_time),
            col(Experiment.id),
        )
    )
    found: list[Claim] = []
    for experiment_id in session.exec(experiments).all():
        query = (
            select(Job, Candidate, Experiment)
            .join(Candidate, is_candidate_of_job())
            .join(Experiment, col(Experiment.id) == col(Job.experiment_id))
            .where(Job.state == JobState.PENDING, Job.experiment_id == experiment_id)
            .order_by(col(Job.attempts), col(Job.place))
            .limit(count - len(found))
            .with_for_update(of=Job, skip_locked=True)
        )
        found += (Claim(*row) for row in session.exec(query))
        if len(found) == count:
            break
    return found


def extend_leases(
    session: Session, beats: Sequence[LeaseProgress], deadline: float
) -> Sequence[LeaseState]:
    """Extend the leases in force; return the state of each lease.

    The next heartbeat extends the lease of a job that another transaction has locked.
    """
    named = select(Job).where(col(Job.id).in_({beat.lease.job_id for beat in beats}))
    leased = named.where(Job.state == JobState.LEASED).with_for_update(skip_locked=True)
    held = {job.id for job in session.exec(leased)}
    jobs = {job.id: job for job in session.exec(named)}
    states: list[LeaseState] = []
    for beat in beats:
        job = jobs.get(beat.lease.job_id)
        if job is None:
            states.append(LeaseState(lost=str(unknown_job(beat.lease.job_id))))
        elif job.token != beat.lease.token or job.state not in {
            JobState.LEASED,
            JobState.CANCELLED,
        }:
            states.append(LeaseState(lost=str(stale(job))))
        elif job.state is JobState.CANCELLED:
            states.append(LeaseState(cancel=True))
        else:
            if job.id in held:
                job.lease_deadline = deadline
                job.answers_done, job.waits = beat.answers_done, beat.waits
            states.append(LeaseState())
    return states
