"""What every transaction that changes an experiment does: lock it, end it, tell what happened.

All functions work inside a caller's write transaction that has locked the experiment. Locks are
taken in one order, the experiment before its jobs, so that transactions never wait in a circle.
"""

import uuid
from collections.abc import Collection, Mapping
from functools import lru_cache

from sqlalchemy import insert, update
from sqlmodel import Session, col

from modnorm.client.watch import WAITING
from modnorm.errors import InvalidInputError, NotFoundError, PreconditionError
from modnorm.perturbation.descriptor import Descriptor
from modnorm.spec import ExperimentSpec
from modnorm.tasks import Task, get_stored_task
from modnorm.v1 import experiment_pb2
from services.aggregator.codec import pack_coefficients
from services.aggregator.rows import AnyJob, insert_rows
from services.aggregator.standing import Standing
from services.aggregator.states import (
    OPEN,
    TERMINAL,
    ExperimentState,
    JobState,
    Split,
)
from services.aggregator.tables import Candidate, Event, Experiment, Job

_EVENTS = insert(Event.metadata.tables["events"])
_JOB_NAMESPACE = uuid.UUID("6f0f6c8e-6f0b-5d2a-9d0c-1f3f4a3c1b52")


def lock_experiment(session: Session, experiment_id: str) -> Experiment:
    """Return an experiment that nobody else changes until the transaction ends.

    Raises:
        NotFoundError: there is no such experiment.
    """
    experiment = session.get(
        Experiment, experiment_id, with_for_update=True, populate_existing=True
    )
    if experiment is None:
        raise unknown_experiment(experiment_id)
    return experiment


def unknown_experiment(experiment_id: str) -> NotFoundError:
    """Return the error of an id that nothing has."""
    return NotFoundError(
        f"there is no experiment {experiment_id!r}",
        field="id",
        remedy="`modnorm list` has the ids of those that you may see",
    )


def spec_of(experiment: Experiment) -> ExperimentSpec:
    """Return the spec of an experiment."""
    return parsed_spec(experiment.spec_json)


@lru_cache(maxsize=64)
def parsed_spec(spec_json: str) -> ExperimentSpec:
    """Parse a spec, which never changes, once for all reports of its experiment."""
    return ExperimentSpec.model_validate_json(spec_json)


def task_of(experiment: Experiment) -> Task:
    """Return the task of an experiment, with the scorer that it was created with.

    Raises:
        PreconditionError: this version has no such scorer.
    """
    task = spec_of(experiment).task
    try:
        return get_stored_task(task.name, scorer=experiment.scorer, declaration=task.declaration)
    except InvalidInputError as error:
        raise PreconditionError(
            f"the answers are scored by {experiment.scorer}: {error.message}",
            field=error.field,
            remedy="finish the experiment with the version that it was created with",
        ) from error


def record(
    session: Session,
    experiment: Experiment,
    message: str,
    now: float,
    standing: Standing | None = None,
) -> None:
    """Store an event: what happened, and where the experiment is now.

    Args:
        session: The transaction.
        experiment: The experiment, locked.
        message: What happened.
        now: The time.
        standing: How the phase stands; the database is asked when absent.
    """
    standing = standing or standing_of(session, experiment)
    row = event_of(experiment, message, now, standing)
    session.connection().execute(_EVENTS, [row])


def event_of(
    experiment: Experiment, message: str, now: float, standing: Standing
) -> dict[str, object]:
    """Number the next event of an experiment, and return it by columns."""
    experiment.last_cursor += 1
    return {
        "experiment_id": experiment.id,
        "cursor": experiment.last_cursor,
        "time": now,
        "message": message,
        "state": experiment.state,
        "progress": _progress(experiment, standing).SerializeToString(deterministic=True),
    }


def move(
    session: Session, experiment: Experiment, state: ExperimentState, message: str, now: float
) -> None:
    """Change the state of an experiment that has not ended."""
    experiment.state = state
    record(session, experiment, message, now)


def end(
    session: Session, experiment: Experiment, state: ExperimentState, message: str, now: float
) -> None:
    """End an experiment, and with it all jobs that are still open; an ended one stays as it is."""
    if experiment.state in TERMINAL:
        return
    experiment.end_time = now
    experiment.error = message if state is ExperimentState.FAILED else ""
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
    """Begin a phase: store one pending job a candidate; ids follow from what they are for."""
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
    session.flush()


def close_job(experiment: Experiment, job: AnyJob, *, done: bool) -> None:
    """Let an open job of the present phase be done, or fail for good; it is counted once."""
    job.lease_deadline = None
    if done:
        job.state = JobState.DONE
        experiment.jobs_done += 1
    else:
        job.state = JobState.FAILED
        experiment.jobs_failed += 1


def has_open_jobs(experiment: Experiment) -> bool:
    """Tell whether a job of the present phase still has to end."""
    return experiment.jobs_done + experiment.jobs_failed < experiment.jobs_total


def standing_of(session: Session, experiment: Experiment) -> Standing:
    """Tell how far the present phase is, and the best rewards so far."""
    return Standing.of(session, experiment.id, spec_of(experiment).population.ensemble_sizes[-1])


def reason_to_wait(session: Session, experiment: Experiment) -> str:
    """Return what the last event says is waited for; empty where it says something else."""
    if experiment.state in TERMINAL:
        return ""
    message = session.get_one(Event, (experiment.id, experiment.last_cursor)).message
    return message.removeprefix(WAITING) if message.startswith(WAITING) else ""


def progress_of(session: Session, experiment: Experiment) -> experiment_pb2.Progress:
    """Tell how far an experiment is, as a message."""
    return _progress(experiment, standing_of(session, experiment))


def _progress(experiment: Experiment, standing: Standing) -> experiment_pb2.Progress:
    progress = standing.progress(experiment)
    settings = spec_of(experiment).iterative
    progress.updates_total = settings.updates if settings else 0
    return progress
