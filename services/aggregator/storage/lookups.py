"""Lookups and locks of experiments and jobs inside a caller's transaction.

Experiments are locked before their jobs, so that transactions never deadlock.
"""

from sqlalchemy import ColumnElement
from sqlmodel import Session, col

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job


def find_experiment(session: Session, experiment_id: str) -> Experiment:
    """Return an experiment."""
    experiment = session.get(Experiment, experiment_id)
    if experiment is None:
        raise unknown_experiment(experiment_id)
    return experiment


def lock_experiment(session: Session, experiment_id: str) -> Experiment:
    """Return an experiment, locked until the end of the transaction."""
    experiment = session.get(
        Experiment, experiment_id, with_for_update=True, populate_existing=True
    )
    if experiment is None:
        raise unknown_experiment(experiment_id)
    return experiment


def lock_job(session: Session, job_id: str) -> tuple[Job, Experiment]:
    """Lock the experiment of a job, then the job."""
    job = session.get(Job, job_id)
    if job is None:
        raise unknown_job(job_id)
    experiment = lock_experiment(session, job.experiment_id)
    session.refresh(job, with_for_update=True)
    return job, experiment


def is_candidate_of_job() -> ColumnElement[bool]:
    """Return the condition that joins `candidates` to `jobs`."""
    return (col(Candidate.experiment_id) == col(Job.experiment_id)) & (
        col(Candidate.index) == col(Job.candidate)
    )


def unknown_experiment(experiment_id: str) -> NotFoundError:
    """Return the error for an unknown experiment id."""
    return NotFoundError(
        f"there is no experiment {experiment_id!r}",
        field="id",
        remedy="`modnorm list` prints the ids of your experiments",
    )


def unknown_job(job_id: str) -> NotFoundError:
    """Return the error for an unknown job id."""
    return NotFoundError(f"there is no job {job_id!r}", field="lease.job_id")
