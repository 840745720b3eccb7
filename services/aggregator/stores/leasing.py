"""Leases that are asked for, or extended, together in one transaction.

Jobs that another transaction has locked are passed over. These transactions lock many jobs, and
not the experiments before them: if they waited, they could wait in a circle.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, update
from sqlmodel import Session, col, select

from services.aggregator.codec import pack_rows
from services.aggregator.rows import Work, select_work
from services.aggregator.shortcuts import Shortcuts
from services.aggregator.states import JobState, Split
from services.aggregator.stores.attempts import Beat, Claim, ClaimRequest
from services.aggregator.tables import Experiment, Job

_JOBS = Job.metadata.tables["jobs"]
_LEASE = (
    update(_JOBS)
    .where(_JOBS.c.id == bindparam("key"))
    .values(
        state=JobState.LEASED,
        token=bindparam("next_token"),
        worker=bindparam("by"),
        lease_deadline=bindparam("until"),
        answers_done=0,
        skipped=bindparam("left_out"),
    )
)
_EXTEND = (
    update(_JOBS)
    .where(_JOBS.c.id == bindparam("key"))
    .values(lease_deadline=bindparam("until"), answers_done=bindparam("done"))
)


def lease_jobs(
    session: Session, requests: Sequence[ClaimRequest], deadline: float, shortcuts: Shortcuts
) -> list[Claim | None]:
    """Lease those of the jobs that are pending, each to who asked for it first.

    Args:
        session: The transaction.
        requests: Who asks for what.
        deadline: When the leases end.
        shortcuts: What need not be done.

    Returns:
        What each got; None where the job is not pending (any more), or is locked.
    """
    query = (
        select_work({request.job_id for request in requests})
        .where(col(Job.state) == JobState.PENDING)
        .with_for_update(of=Job, skip_locked=True)
    )
    pending = {work.job.id: work for work in map(Work.of, session.execute(query))}
    claims = [_lease(session, pending.pop(one.job_id, None), one, shortcuts) for one in requests]
    leased = [
        {
            "key": claim.job.id,
            "next_token": claim.job.token,
            "by": claim.job.worker,
            "until": deadline,
            "left_out": pack_rows(claim.skipped) if claim.skipped else None,
        }
        for claim in claims
        if claim
    ]
    if leased:
        session.connection().execute(_LEASE, leased)
    return claims


def extend_leases(session: Session, beats: Sequence[Beat], deadline: float) -> list[bool]:
    """Extend those of the leases that are in force, and tell which were; others may be locked."""
    query = (
        select(Job.id, Job.token)
        .where(col(Job.id).in_({beat.job_id for beat in beats}), Job.state == JobState.LEASED)
        .with_for_update(skip_locked=True)
    )
    tokens = dict(session.exec(query).all())
    in_force = [tokens.get(beat.job_id) == beat.token for beat in beats]
    extended = [
        {"key": beat.job_id, "until": deadline, "done": beat.answers_done}
        for beat, holds in zip(beats, in_force, strict=True)
        if holds
    ]
    if extended:
        session.connection().execute(_EXTEND, extended)
    return in_force


def _lease(
    session: Session, work: Work | None, request: ClaimRequest, shortcuts: Shortcuts
) -> Claim | None:
    if work is None:
        return None
    job = work.job
    job.state = JobState.LEASED
    job.token += 1
    job.worker = request.worker
    experiment = session.get_one(Experiment, job.experiment_id)
    if job.split is Split.SELECTION:
        bar = shortcuts.bar(session, experiment, job.candidate)
        return Claim(job, work.candidate, experiment, bar=bar)
    skipped = shortcuts.skippable(session, experiment, job.candidate)
    return Claim(job, work.candidate, experiment, skipped=skipped)
