"""Progress of a phase: finished and running jobs, and the best rewards so far."""

from bisect import insort
from collections.abc import Sequence
from typing import Self

from sqlmodel import Session, col, func, select

from modnorm.v1 import experiment_pb2
from services.aggregator.storage.states import BASE_INDEX, JobState, Split
from services.aggregator.storage.tables import Experiment, Job


class PhaseProgress:
    """Progress, read once per transaction and updated within it.

    The cost of its queries grows with the number of workers and the size of the largest ensemble,
    not with the population.

    Args:
        running: Number of leased jobs.
        rewards: The best rewards of candidates, at most `size`.
        size: The largest K.
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
        return cls(
            _running_jobs(session, experiment), _best_rewards(session, experiment, size), size
        )

    def scored(self, job: Job, *, was_leased: bool) -> None:
        """Add a finished job.

        Args:
            job: The job with its metric.
            was_leased: Whether the job was counted as running until now.
        """
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
            candidates_stopped=experiment.candidates_stopped,
            updates_done=experiment.updates_done,
            updates_total=settings.updates if settings else 0,
        )
        if self._rewards:
            progress.best_reward = self._rewards[-1]
        if len(self._rewards) == self._size:
            progress.threshold_reward = self._rewards[0]
        return progress


def _running_jobs(session: Session, experiment: Experiment) -> int:
    """Count the leased jobs.

    The experiment has no counter of leased jobs, because every claim would have to lock it.
    """
    query = select(func.count()).where(
        Job.experiment_id == experiment.id,
        col(Job.split).in_(Split),
        Job.state == JobState.LEASED,
    )
    return session.exec(query).one()


def _best_rewards(session: Session, experiment: Experiment, count: int) -> list[float]:
    query = (
        select(Job.metric)
        .where(
            Job.experiment_id == experiment.id,
            Job.split == Split.SELECTION,
            Job.state == JobState.DONE,
            Job.candidate != BASE_INDEX,
            col(Job.metric).is_not(None),
        )
        .order_by(col(Job.metric).desc())
        .limit(count)
    )
    return [reward for reward in session.exec(query) if reward is not None]
