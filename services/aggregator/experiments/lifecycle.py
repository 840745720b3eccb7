"""Changes common to all phases: events, states and ends of experiments, new jobs and candidates.

All functions work inside a caller's write transaction that has locked the experiment.
"""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import update
from sqlmodel import Session, col

from modnorm.perturbation.descriptor import Descriptor
from services.aggregator.experiments.phase_progress import PhaseProgress
from services.aggregator.storage.codec import pack_coefficients
from services.aggregator.storage.states import (
    OPEN,
    TERMINAL,
    ExperimentState,
    FailureKind,
    JobState,
    Split,
)
from services.aggregator.storage.table_statistics import insert_rows
from services.aggregator.storage.tables import Candidate, Event, Experiment, Job

_JOB_NAMESPACE = uuid.UUID("6f0f6c8e-6f0b-5d2a-9d0c-1f3f4a3c1b52")


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of an experiment, for watchers, dispatcher and metrics."""

    experiment_id: str
    pending: tuple[str, ...] = ()
    """Ids of jobs that became pending and have to be published."""
    job: Job | None = None
    """The job whose attempt ended, in its new state; None if no job changed."""
    experiment: Experiment | None = None
    """The experiment of the job in its new state."""
    kind: FailureKind | None = None
    """How the attempt failed, if its lease expired."""


def record(  # noqa: PLR0913 - an event and its columns
    session: Session,
    experiment: Experiment,
    message: str,
    now: float,
    progress: PhaseProgress | None = None,
    *,
    waits_for: str = "",
) -> None:
    """Store the next event of an experiment with its state and progress.

    Args:
        session: The transaction.
        experiment: The experiment, locked.
        message: Description of the event.
        now: The time.
        progress: The progress of the phase; by default read from the database.
        waits_for: Why the experiment now waits for a service, if it does.
    """
    progress = progress or PhaseProgress.of(session, experiment)
    row = next_event(experiment, message, now, progress, waits_for=waits_for)
    insert_rows(session, Event, [row])


def next_event(
    experiment: Experiment,
    message: str,
    now: float,
    progress: PhaseProgress,
    *,
    waits_for: str = "",
) -> Mapping[str, object]:
    """Return the row of the next event of a locked experiment, for `insert_rows`."""
    experiment.last_cursor += 1
    experiment.waits_for = waits_for
    return {
        "experiment_id": experiment.id,
        "cursor": experiment.last_cursor,
        "time": now,
        "message": message,
        "waits_for": waits_for,
        "state": experiment.state,
        "progress": progress.message(experiment).SerializeToString(deterministic=True),
    }


def move(
    session: Session, experiment: Experiment, state: ExperimentState, message: str, now: float
) -> None:
    """Change the state of an experiment that has not ended."""
    experiment.state = state
    record(session, experiment, message, now)


def fail(
    session: Session, experiment: Experiment, reason: str, now: float, *, remedy: str = ""
) -> None:
    """Fail an experiment unless it has ended."""
    if experiment.state in TERMINAL:
        return
    experiment.error, experiment.remedy = reason, remedy
    end(session, experiment, ExperimentState.FAILED, with_remedy(reason, remedy), now)


def with_remedy(reason: str, remedy: str) -> str:
    """Return reason and remedy as one text."""
    return f"{reason} ({remedy})" if remedy else reason


def end(
    session: Session, experiment: Experiment, state: ExperimentState, message: str, now: float
) -> None:
    """End an experiment and cancel its open jobs, unless it has ended."""
    if experiment.state in TERMINAL:
        return
    experiment.end_time = now
    session.flush()
    session.exec(
        update(Job)
        .where(col(Job.experiment_id) == experiment.id, col(Job.state).in_(OPEN))
        .values(state=JobState.CANCELLED, lease_deadline=None)
    )
    move(session, experiment, state, message, now)


def add_jobs(
    session: Session, experiment: Experiment, split: Split, candidates: Collection[int]
) -> None:
    """Begin a phase: store one pending job per candidate, with an id derived from its content."""
    experiment.jobs_total, experiment.jobs_done, experiment.jobs_failed = len(candidates), 0, 0
    rows = (
        {
            "id": str(uuid.uuid5(_JOB_NAMESPACE, f"{experiment.id}/{split}/{candidate}")),
            "experiment_id": experiment.id,
            "candidate": candidate,
            "split": split,
        }
        for candidate in candidates
    )
    insert_rows(session, Job, rows)
    session.flush()


def add_candidates(
    session: Session, experiment_id: str, descriptors: Mapping[int, Descriptor]
) -> None:
    """Store candidates by index."""
    rows = (
        {
            "experiment_id": experiment_id,
            "index": index,
            "noise": descriptor.noise,
            "seed": descriptor.seed,
            "method": descriptor.method,
            "radius": descriptor.radius,
            "scale_map_digest": descriptor.scale_map,
            "lineage": descriptor.lineage,
            "coefficients": pack_coefficients(descriptor.coefficients)
            if descriptor.coefficients
            else None,
        }
        for index, descriptor in descriptors.items()
    )
    insert_rows(session, Candidate, rows)


def close_job(experiment: Experiment, job: Job, *, done: bool) -> None:
    """Mark an open job of the present phase as done or failed, and count it."""
    job.lease_deadline = None
    if done:
        job.state = JobState.DONE
        experiment.jobs_done += 1
    else:
        job.state = JobState.FAILED
        experiment.jobs_failed += 1
