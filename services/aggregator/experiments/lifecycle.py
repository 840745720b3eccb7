"""Changes common to all phases: progress, events, states and ends, new jobs and candidates.

All functions work inside a caller's write transaction that has locked the experiment.
"""

import uuid
from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Self

from sqlalchemy import update
from sqlmodel import Session, col, func, select

from modnorm.perturbation.descriptor import Descriptor
from modnorm.search.answers import BASE_INDEX
from modnorm.services.aggregator.experiments.reuse import NewJob, content_keys, reuse_evaluations
from modnorm.services.aggregator.storage.database import transaction_time
from modnorm.services.aggregator.storage.dialects import insert_rows
from modnorm.services.aggregator.storage.tables import (
    OPEN,
    TERMINAL,
    Candidate,
    Event,
    Experiment,
    ExperimentState,
    FailureKind,
    Job,
    JobState,
    Split,
    pack_coefficients,
)
from modnorm.v1 import experiment_pb2
from modnorm.wire.run_messages import with_remedy

_JOB_NAMESPACE = uuid.UUID("6f0f6c8e-6f0b-5d2a-9d0c-1f3f4a3c1b52")

Batch = Mapping[Split, Collection[int]]
"""Candidate indices by the split that they answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of an experiment, for watchers, idle workers and metrics."""

    experiment_id: str
    pending: bool = False
    """Whether jobs became pending, of which idle workers must be told."""
    job: Job | None = None
    """The job whose attempt ended, in its new state; None if no job changed."""
    experiment: Experiment | None = None
    """The experiment of the job, in its new state."""
    kind: FailureKind | None = None
    """How the attempt failed, if it did."""
    ended: bool = False
    """Whether this job ended the experiment. Several jobs of a batch share `experiment`."""

    @classmethod
    def by_job(
        cls, experiment: Experiment, job: Job, kind: FailureKind | None = None, *, pending: bool
    ) -> Self:
        """Return the change made by the end of an attempt."""
        ended = experiment.state in TERMINAL
        return cls(experiment.id, pending, job, experiment, kind, ended)


class PhaseProgress:
    """Progress, read once per transaction and updated within it.

    The cost of its queries grows with the number of workers and the size of the largest ensemble,
    not with the population.
    """

    def __init__(self, running: int, rewards: Sequence[float], size: int) -> None:
        self._running = running
        self._rewards = sorted(rewards)
        self._size = size

    @classmethod
    def of(cls, session: Session, experiment: Experiment) -> Self:
        """Read the progress of an experiment, including changes of this transaction."""
        session.flush()
        size = experiment.spec.population.ensemble_sizes[-1]
        # Leased jobs have no counter, because every claim would have to lock the experiment.
        running = select(func.count()).where(
            Job.experiment_id == experiment.id,
            col(Job.split).in_(Split),
            Job.state == JobState.LEASED,
        )
        best = (
            select(Job.metric)
            .where(
                Job.experiment_id == experiment.id,
                Job.split == Split.SELECTION,
                Job.state == JobState.DONE,
                Job.candidate != BASE_INDEX,
                col(Job.metric).is_not(None),
            )
            .order_by(col(Job.metric).desc())
            .limit(size)
        )
        rewards = [reward for reward in session.exec(best) if reward is not None]
        return cls(session.exec(running).one(), rewards, size)

    def scored(self, job: Job, *, was_leased: bool) -> None:
        """Add a finished job."""
        self._running -= was_leased
        selects = job.split is Split.SELECTION and job.candidate != BASE_INDEX
        if job.metric is not None and selects:
            insort(self._rewards, job.metric)
            del self._rewards[: -self._size]

    def message(self, experiment: Experiment) -> experiment_pb2.Progress:
        """Return the progress as a message, with the counters of the experiment."""
        settings = experiment.spec.iterative
        progress = experiment_pb2.Progress(
            jobs_done=experiment.jobs_done,
            jobs_total=experiment.jobs_total,
            jobs_failed=experiment.jobs_failed,
            jobs_running=self._running,
            examples_done=experiment.examples_done,
            examples_total=experiment.examples_total,
            updates_done=experiment.updates_done,
            updates_total=settings.updates if settings else 0,
        )
        if self._rewards:
            progress.best_reward = self._rewards[-1]
        if len(self._rewards) == self._size:
            progress.threshold_reward = self._rewards[0]
        return progress


def record(  # noqa: PLR0913 - an event and its columns
    session: Session,
    experiment: Experiment,
    message: str,
    progress: PhaseProgress | None = None,
    *,
    state: ExperimentState | None = None,
    waits_for: str = "",
    engine_stage: str = "",
) -> None:
    """Store the next event of a locked experiment with its state, perhaps a new one, and progress.

    The progress of the phase is read from the database if not passed. `waits_for` states why the
    experiment waits, if it does, and `engine_stage` what the engine does whose start it awaits.
    """
    experiment.state = state or experiment.state
    progress = progress or PhaseProgress.of(session, experiment)
    row = next_event(
        session, experiment, message, progress, waits_for=waits_for, engine_stage=engine_stage
    )
    insert_rows(session, Event, [row])


def next_event(  # noqa: PLR0913 - an event and its columns
    session: Session,
    experiment: Experiment,
    message: str,
    progress: PhaseProgress,
    *,
    waits_for: str = "",
    engine_stage: str = "",
) -> Mapping[str, object]:
    """Return the row of the next event of a locked experiment, for `insert_rows`."""
    experiment.last_cursor += 1
    experiment.waits_for = waits_for
    shown = progress.message(experiment)
    shown.engine_stage = engine_stage
    return {
        "experiment_id": experiment.id,
        "cursor": experiment.last_cursor,
        "time": transaction_time(session),
        "message": message,
        "waits_for": waits_for,
        "state": experiment.state,
        "progress": shown.SerializeToString(deterministic=True),
    }


def fail(session: Session, experiment: Experiment, reason: str, *, remedy: str = "") -> None:
    """Fail an experiment unless it has ended."""
    if experiment.state in TERMINAL:
        return
    experiment.error, experiment.remedy = reason, remedy
    end(session, experiment, ExperimentState.FAILED, with_remedy(reason, remedy))


def end(session: Session, experiment: Experiment, state: ExperimentState, message: str) -> None:
    """End an experiment and cancel its open jobs, unless it has ended."""
    if experiment.state in TERMINAL:
        return
    experiment.end_time = transaction_time(session)
    session.flush()
    session.exec(
        update(Job)
        .where(col(Job.experiment_id) == experiment.id, col(Job.state).in_(OPEN))
        .values(state=JobState.CANCELLED, lease_deadline=None)
    )
    record(session, experiment, message, state=state)


def add_jobs(session: Session, experiment: Experiment, batch: Batch) -> int:
    """Begin a phase: store its jobs, with ids derived from their content."""
    experiment.jobs_total, experiment.jobs_done = sum(map(len, batch.values())), 0
    experiment.jobs_failed = 0
    places = count()
    for split, candidates in batch.items():
        keys = content_keys(session, experiment, split, candidates)
        jobs = [
            NewJob(
                str(uuid.uuid5(_JOB_NAMESPACE, f"{experiment.id}/{split}/{candidate}")),
                candidate,
                keys.get(candidate, ""),
            )
            for candidate in candidates
        ]
        rows = (
            {
                "id": job.id,
                "experiment_id": experiment.id,
                "candidate": job.candidate,
                "split": split,
                "place": next(places),
                "content_key": job.key,
            }
            for job in jobs
        )
        insert_rows(session, Job, rows)
        reuse_evaluations(session, experiment, jobs)
    return experiment.jobs_done


def add_candidates(
    session: Session, experiment_id: str, descriptors: Mapping[int, Descriptor]
) -> None:
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
