"""Leases that are asked for, or extended, together in one transaction.

Jobs that another transaction has locked are passed over. These transactions lock many jobs, and
not the experiments before them: if they waited, they could wait in a circle.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlmodel import Session

from modnorm.errors import ModnormError
from services.aggregator.bulk import ByIds, ids_of, update
from services.aggregator.codec import pack_rows
from services.aggregator.reports import Checks
from services.aggregator.rows import Work, lease_work
from services.aggregator.states import JobState, Split
from services.aggregator.stores.attempts import Beat, Claim, ClaimRequest, stale, unknown_job
from services.aggregator.tables import Job

_JOBS = Job.metadata.tables["jobs"]
_SKIP = update(_JOBS, ("id",), ("skipped",), {})
_LEASED = ByIds(
    _JOBS.c.id,
    lambda found: (
        select(_JOBS.c.id, _JOBS.c.token)
        .where(found, _JOBS.c.state == JobState.LEASED)
        .with_for_update(skip_locked=True)
    ),
)
_EXTEND = update(_JOBS, ("id",), ("lease_deadline", "answers_done", "resting"), {})
_FOUND = ByIds(_JOBS.c.id, lambda found: select(Job).where(found))


def lease_jobs(
    session: Session, requests: Sequence[ClaimRequest], deadline: float, checks: Checks
) -> list[Claim | None]:
    """Lease those of the jobs that are pending, each to who asked for it first.

    Args:
        session: The transaction.
        requests: Who asks for what.
        deadline: When the leases end.
        checks: What is known of their experiments, and need not be done.

    Returns:
        What each got; None where the job is not pending (any more), or is locked.
    """
    workers = {request.job_id: request.worker for request in reversed(requests)}
    leased = lease_work(session, workers, deadline)
    claims = [_claim(session, leased.pop(one.job_id, None), checks) for one in requests]
    skipped = [
        {"id": claim.job.id, "skipped": pack_rows(claim.skipped)}
        for claim in claims
        if claim and claim.skipped
    ]
    _SKIP.execute(session, skipped)
    return claims


def extend_leases(session: Session, beats: Sequence[Beat], deadline: float) -> list[bool]:
    """Extend those of the leases that are in force, and tell which were; others may be locked."""
    leased = _LEASED.execute(session, {beat.job_id for beat in beats})
    tokens = {row.id: row.token for row in leased}
    in_force = [tokens.get(beat.job_id) == beat.token for beat in beats]
    # The last of several under one lease, by the job.
    extended = {
        beat.job_id: {
            "id": beat.job_id,
            "lease_deadline": deadline,
            "answers_done": beat.answers_done,
            "resting": beat.resting,
        }
        for beat, holds in zip(beats, in_force, strict=True)
        if holds
    }
    _EXTEND.execute(session, list(extended.values()))
    return in_force


def look_up(session: Session, job_ids: Collection[str]) -> dict[str, Job]:
    """Return jobs as they were committed last, whoever has locked them."""
    if not job_ids:
        return {}
    found = session.execute(_FOUND.of(session), ids_of(job_ids))
    return {job.id: job for job in found.scalars()}


def end_of(beat: Beat, job: Job | None) -> bool | ModnormError | None:
    """Return what there is to say about a lease that has ended; None where it is in force.

    True where the job is cancelled: its worker is told so as long as nobody else has begun.
    """
    if job is None:
        return unknown_job(beat.job_id)
    if job.token != beat.token or job.state not in {JobState.LEASED, JobState.CANCELLED}:
        return stale(job)
    return True if job.state is JobState.CANCELLED else None


def _claim(session: Session, work: Work | None, checks: Checks) -> Claim | None:
    if work is None:
        return None
    job = work.job
    experiment = checks.known.experiment(session, job.experiment_id)
    if job.split is Split.SELECTION:
        bar = checks.shortcuts.bar(session, experiment, job.candidate)
        return Claim(job, work.candidate, experiment, bar=bar)
    skipped = checks.shortcuts.skippable(session, experiment, job.candidate)
    return Claim(job, work.candidate, experiment, skipped=skipped)
