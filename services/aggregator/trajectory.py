"""What the states of an iterative run answered, for whoever reads its results.

All functions work inside a caller's transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from sqlmodel import Session, col, select

from modnorm.baselines.checkpoints import DevelopmentResult
from services.aggregator.states import BASE_INDEX, ExperimentState, JobState, Split, state_index
from services.aggregator.tables import Experiment, Job
from services.aggregator.updates import (
    development_results,
    is_iterative,
    reported_updates,
    rewards_of,
    state_digest,
)

_REPORTING = (ExperimentState.VOTING, ExperimentState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A state and the jobs that it ended."""

    updates: int
    digest: str
    mean_reward: float | None
    """Of the candidates around it; None after the last update."""
    result: DevelopmentResult | None
    development: Job | None
    heldout: Job | None
    reported: bool


def states_of(session: Session, experiment: Experiment) -> list[StateRecord]:
    """Return the states of an iterative run that were evaluated, in order; none of others."""
    if not is_iterative(experiment):
        return []
    results = {one.step: one for one in development_results(session, experiment)}
    reported = reported_updates(session, experiment) if experiment.state in _REPORTING else None
    found = _jobs(session, experiment)
    return [
        StateRecord(
            updates=updates,
            digest=state_digest(session, experiment, updates),
            mean_reward=_mean(rewards_of(session, experiment, updates)),
            result=results.get(updates),
            development=jobs.get(Split.DEVELOPMENT),
            heldout=jobs.get(Split.HELDOUT),
            reported=updates == reported,
        )
        for updates, jobs in sorted(found.items())
    ]


def _jobs(session: Session, experiment: Experiment) -> dict[int, Mapping[Split, Job]]:
    """Return the jobs of states that are done, by updates and split."""
    done = session.exec(
        select(Job).where(
            Job.experiment_id == experiment.id,
            col(Job.split).in_((Split.DEVELOPMENT, Split.HELDOUT)),
            col(Job.candidate) <= state_index(0),
            Job.state == JobState.DONE,
        )
    )
    found: dict[int, dict[Split, Job]] = {}
    for job in done:
        found.setdefault(BASE_INDEX - job.candidate, {})[job.split] = job
    return dict(found)


def _mean(rewards: list[float | None]) -> float | None:
    scored = [reward for reward in rewards if reward is not None]
    return fsum(scored) / len(scored) if scored else None
