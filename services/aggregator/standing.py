"""How far a phase is and the best rewards so far, which every event tells."""

from bisect import insort
from collections.abc import Sequence
from typing import Self

from sqlalchemy import bindparam, func, select
from sqlmodel import Session

from modnorm.v1 import experiment_pb2
from services.aggregator.rows import AnyJob
from services.aggregator.states import BASE_INDEX, JobState, Split
from services.aggregator.tables import Experiment, Job

_JOBS = Job.metadata.tables["jobs"]
_RUNNING = select(func.count()).where(
    _JOBS.c.experiment_id == bindparam("experiment"),
    _JOBS.c.split.in_(Split),
    _JOBS.c.state == JobState.LEASED,
)
_BEST = (
    select(_JOBS.c.metric)
    .where(
        _JOBS.c.experiment_id == bindparam("experiment"),
        _JOBS.c.split == Split.SELECTION,
        _JOBS.c.state == JobState.DONE,
        _JOBS.c.candidate != BASE_INDEX,
        _JOBS.c.metric.is_not(None),
    )
    .order_by(_JOBS.c.metric.desc())
    .limit(bindparam("count"))
)


class Standing:
    """What the database is asked for once a transaction, and kept up to date through it.

    Asking costs as much as there are workers and as the largest ensemble is large, whatever the
    population.

    Args:
        running: Leased jobs.
        rewards: The best rewards of candidates, at most `size` of them.
        size: The largest K.
    """

    def __init__(self, running: int, rewards: Sequence[float], size: int) -> None:
        self._running = running
        self._rewards = sorted(rewards)
        self._size = size

    @classmethod
    def of(cls, session: Session, experiment_id: str, size: int) -> Self:
        """Ask the database; what the session has changed is flushed."""
        session.flush()
        running = _running_jobs(session, experiment_id)
        return cls(running, _best_rewards(session, experiment_id, size), size)

    def scored(self, job: AnyJob, *, was_leased: bool) -> None:
        """Take in a job that is done.

        Args:
            job: The job with its metric.
            was_leased: Whether it was counted as running until now.
        """
        self._running -= was_leased
        if job.metric is not None and _counts(job):
            insort(self._rewards, job.metric)
            del self._rewards[: -self._size]

    def progress(self, experiment: Experiment) -> experiment_pb2.Progress:
        """Tell it, with what the experiment itself counts."""
        progress = experiment_pb2.Progress(
            jobs_done=experiment.jobs_done,
            jobs_total=experiment.jobs_total,
            jobs_failed=experiment.jobs_failed,
            jobs_running=self._running,
            examples_done=experiment.examples_done,
            examples_total=experiment.examples_total,
            candidates_stopped=experiment.candidates_stopped,
            updates_done=experiment.updates_done,
        )
        if self._rewards:
            progress.best_reward = self._rewards[-1]
        if len(self._rewards) == self._size:
            progress.threshold_reward = self._rewards[0]
        return progress


def _counts(job: AnyJob) -> bool:
    return job.split is Split.SELECTION and job.candidate != BASE_INDEX


def _running_jobs(session: Session, experiment_id: str) -> int:
    """Count the leased jobs, all of one phase: at most as many as there are workers.

    Not a counter of the experiment, which every claim would have to lock.
    """
    count: int = session.connection().execute(_RUNNING, {"experiment": experiment_id}).scalar_one()
    return count


def _best_rewards(session: Session, experiment_id: str, count: int) -> Sequence[float]:
    parameters = {"experiment": experiment_id, "count": count}
    rewards = session.connection().execute(_BEST, parameters).scalars()
    return [reward for reward in rewards if reward is not None]
