"""Claims and extensions of leases, many in one transaction.

These transactions lock jobs without their experiments. So they skip jobs that another transaction
has locked: a wait could deadlock.
"""

import math
from collections.abc import Collection, Sequence

from sqlalchemy import func
from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.errors import ModnormError
from modnorm.services.aggregator.experiments.early_stop import EarlyStopCache
from modnorm.services.aggregator.jobs.worker_requests import Claim, ClaimRequest, Heartbeat, stale
from modnorm.services.aggregator.storage.codec import pack_rows
from modnorm.services.aggregator.storage.lookups import is_candidate_of_job, unknown_job
from modnorm.services.aggregator.storage.states import JobState, Split
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job

SHEETS = 8
"""Most finished jobs whose answers a claim names."""


def lease_jobs(
    session: Session,
    requests: Sequence[ClaimRequest],
    deadline: float,
    early_stop: EarlyStopCache,
) -> list[Claim | None]:
    """Lease the requested jobs that are pending, each to the first worker that requested it.

    Returns:
        A claim for each request; None if the job is not pending or is locked.
    """
    query = (
        select(Job, Candidate)
        .join(Candidate, is_candidate_of_job())
        .where(col(Job.id).in_({one.job_id for one in requests}), Job.state == JobState.PENDING)
        .with_for_update(of=Job, skip_locked=True)
    )
    free = {job.id: (job, candidate) for job, candidate in session.exec(query)}
    claims: list[Claim | None] = []
    for request in requests:
        pair = free.pop(request.job_id, None)
        claim = _claim(session, *pair, early_stop) if pair else None
        if claim is not None:
            _lease(claim, request.worker, deadline)
        claims.append(claim)
    return claims


def _claim(session: Session, job: Job, candidate: Candidate, early_stop: EarlyStopCache) -> Claim:
    experiment = session.get_one(Experiment, job.experiment_id)
    sheets = _answer_sheets(session, experiment, job)
    if job.split is Split.SELECTION:
        threshold = early_stop.threshold(session, experiment, job.candidate)
        return Claim(job, candidate, experiment, threshold=threshold, sheets=sheets)
    if job.split is Split.QUESTIONS:
        skipped = early_stop.settled_questions(session, experiment, job.candidate)
    else:
        skipped = early_stop.skippable(session, experiment, job.candidate)
    return Claim(job, candidate, experiment, skipped=skipped, sheets=sheets)


def _answer_sheets(session: Session, experiment: Experiment, job: Job) -> Sequence[str]:
    """Return the finished jobs that an engine may draft from: the base's, then the best."""
    if experiment.spec.engine.drafts == "none":
        return ()
    query = (
        select(Job.id)
        .where(
            Job.experiment_id == experiment.id,
            Job.split == job.split,
            Job.state == JobState.DONE,
        )
        .order_by(
            col(Job.candidate) != BASE_INDEX,
            func.coalesce(col(Job.metric), -math.inf).desc(),
            col(Job.candidate),
        )
        .limit(SHEETS)
    )
    return session.exec(query).all()


def _lease(claim: Claim, worker: str, deadline: float) -> None:
    """Lease a job under a new fencing token."""
    job = claim.job
    job.state, job.token, job.worker = JobState.LEASED, job.token + 1, worker
    job.lease_deadline, job.answers_done, job.parked = deadline, 0, False
    job.skipped = pack_rows(claim.skipped) if claim.skipped else None


def extend_leases(
    session: Session, beats: Sequence[Heartbeat], deadline: float
) -> list[bool | Exception | None]:
    """Extend leases that are in force.

    Returns:
        One answer for each heartbeat. False: the lease is extended. True: the job is cancelled. An
        error: the lease was lost. None: the job is locked, and the lease may be in force.
    """
    ids = {beat.job_id for beat in beats}
    leased = (
        select(Job)
        .where(col(Job.id).in_(ids), Job.state == JobState.LEASED)
        .with_for_update(skip_locked=True)
    )
    locked = {job.id: job for job in session.exec(leased)}
    others = _read_committed(session, ids - locked.keys())
    answers: list[bool | Exception | None] = []
    for beat in beats:
        job = locked.get(beat.job_id)
        if job is None or job.token != beat.token:
            answers.append(_end_of(beat, job or others.get(beat.job_id)))
        else:
            _extend(job, beat, deadline)
            answers.append(False)
    return answers


def extend_locked_lease(session: Session, beat: Heartbeat, deadline: float) -> bool | Exception:
    """Extend one lease after a wait for the transaction that has locked its job."""
    job = session.get(Job, beat.job_id, with_for_update=True)
    ended = _end_of(beat, job)
    if ended is not None:
        return ended
    if job is not None:
        _extend(job, beat, deadline)
    return False


def _extend(job: Job, beat: Heartbeat, deadline: float) -> None:
    job.lease_deadline = deadline
    job.answers_done, job.parked = beat.answers_done, beat.parked


def _read_committed(session: Session, job_ids: Collection[str]) -> dict[str, Job]:
    """Return the last committed version of jobs, even if they are locked."""
    if not job_ids:
        return {}
    return {job.id: job for job in session.exec(select(Job).where(col(Job.id).in_(job_ids)))}


def _end_of(beat: Heartbeat, job: Job | None) -> bool | ModnormError | None:
    """Return the response for a lease that has ended; None if it is in force.

    True means that the job is cancelled. An error means that the lease was lost.
    """
    if job is None:
        return unknown_job(beat.job_id)
    if job.token != beat.token or job.state not in {JobState.LEASED, JobState.CANCELLED}:
        return stale(job)
    return True if job.state is JobState.CANCELLED else None
