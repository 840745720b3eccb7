"""Lookups inside a caller's transaction: experiments, jobs, and artifacts by digest.

Experiments are locked before their jobs, so that transactions never deadlock.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from sqlalchemy import ColumnElement
from sqlmodel import Session, col

from modnorm.errors import NotFoundError
from modnorm.services.aggregator.storage.dialects import insert_if_absent
from modnorm.services.aggregator.storage.tables import Artifact, Candidate, Experiment, Job
from modnorm.tasks import Row
from modnorm.wire.answer_sheets import pack_text, unpack_text


@dataclass(frozen=True, slots=True)
class StoredText:
    digest: str
    text: str

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(hashlib.sha256(text.encode()).hexdigest(), text)


def keep_artifact(session: Session, artifact: StoredText) -> None:
    """Store a text under its digest unless it is stored already."""
    row = {"digest": artifact.digest, "content": pack_text(artifact.text)}
    insert_if_absent(session, Artifact, row)


def load_text(session: Session, digest: str) -> str:
    artifact = session.get(Artifact, digest)
    if artifact is None:
        raise NotFoundError(f"there is no artifact {digest[:64]!r}", field="digest")
    return unpack_text(artifact.content)


def load_rows(session: Session, digest: str) -> tuple[Row, ...]:
    """Return stored rows in order."""
    text = load_text(session, digest)
    return tuple(json.loads(line) for line in text.split("\n"))


def find_experiment(session: Session, experiment_id: str) -> Experiment:
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
    return NotFoundError(
        f"there is no experiment {experiment_id!r}",
        field="id",
        remedy="`modnorm list` prints the ids of your experiments",
    )


def unknown_job(job_id: str) -> NotFoundError:
    return NotFoundError(f"there is no job {job_id!r}", field="lease.job_id")
