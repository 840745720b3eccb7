"""Leases that are asked for, or extended, together in one transaction.

Jobs that another transaction has locked are passed over. These transactions lock many jobs, and
not the experiments before them: if they waited, they could wait in a circle.
"""

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, select

from services.aggregator.states import JobState
from services.aggregator.stores.attempts import Beat, Claim, ClaimRequest
from services.aggregator.tables import Candidate, Experiment, Job


def lease_jobs(
    session: Session, requests: Sequence[ClaimRequest], deadline: float
) -> list[Claim | None]:
    """Lease those of the jobs that are pending, each to who asked for it first.

    Args:
        session: The transaction.
        requests: Who asks for what.
        deadline: When the leases end.

    Returns:
        What each got; None where the job is not pending (any more), or is locked.
    """
    pending = _lock_pending(session, {request.job_id for request in requests})
    claims: list[Claim | None] = []
    for request in requests:
        found = pending.pop(request.job_id, None)
        if found is None:
            claims.append(None)
            continue
        job, candidate = found
        _lease(job, request.worker, deadline)
        claims.append(Claim(job, candidate, session.get_one(Experiment, job.experiment_id)))
    return claims


def extend_leases(session: Session, beats: Sequence[Beat], deadline: float) -> list[bool]:
    """Extend those of the leases that are in force, and tell which were; others may be locked."""
    query = (
        select(Job)
        .where(col(Job.id).in_({beat.job_id for beat in beats}), Job.state == JobState.LEASED)
        .with_for_update(skip_locked=True)
    )
    leased = {job.id: job for job in session.exec(query)}
    return [_extend(leased.get(beat.job_id), beat, deadline) for beat in beats]


def _lock_pending(session: Session, job_ids: Collection[str]) -> dict[str, tuple[Job, Candidate]]:
    query = (
        select(Job, Candidate)
        .join(
            Candidate,
            (col(Candidate.experiment_id) == col(Job.experiment_id))
            & (col(Candidate.index) == col(Job.candidate)),
        )
        .where(col(Job.id).in_(job_ids), Job.state == JobState.PENDING)
        .with_for_update(of=Job, skip_locked=True)
    )
    return {job.id: (job, candidate) for job, candidate in session.exec(query)}


def _lease(job: Job, worker: str, deadline: float) -> None:
    job.state = JobState.LEASED
    job.token += 1
    job.worker = worker
    job.lease_deadline = deadline
    job.answers_done = 0


def _extend(job: Job | None, beat: Beat, deadline: float) -> bool:
    if job is None or job.token != beat.token:
        return False
    job.lease_deadline = deadline
    job.answers_done = beat.answers_done
    return True
