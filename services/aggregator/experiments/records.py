"""Experiments, candidates and states of iterative runs with their jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

from sqlmodel import Session, col, select

from modnorm.analysis.answers import BASE_INDEX
from modnorm.baselines.updates import DevelopmentResult
from modnorm.perturbation.lineage import Step
from modnorm.services.aggregator.experiments.iterative_updates import (
    development_results,
    reported_updates,
    rewards_of,
    state_digest,
)
from modnorm.services.aggregator.storage.states import (
    ExperimentState,
    JobState,
    Split,
    state_index,
)
from modnorm.services.aggregator.storage.tables import Candidate, Ensemble, Experiment, Job, Update
from modnorm.v1 import experiment_pb2


@dataclass(frozen=True, slots=True)
class StateRecord:
    """A state and its finished jobs."""

    updates: int
    digest: str
    mean_reward: float | None
    """Mean reward of the candidates around the state; None after the last update."""
    result: DevelopmentResult | None
    development: Job | None
    heldout: Job | None
    reported: bool


@dataclass(frozen=True, slots=True)
class CandidateJobs:
    """A candidate and its jobs."""

    candidate: Candidate
    selection: Job
    heldout: Job | None


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """An experiment with its results so far."""

    experiment: Experiment
    progress: experiment_pb2.Progress
    base: Sequence[Job]
    """Finished jobs of the base, one per split."""
    ensembles: Sequence[Ensemble]
    states: Sequence[StateRecord] = ()
    """Evaluated states of an iterative run."""
    answered: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """Held-out answers of each expert: all, those that give a vote, and cut-off ones."""


_REPORTING = (ExperimentState.VOTING, ExperimentState.SUCCEEDED)


def evaluated_states(session: Session, experiment: Experiment) -> list[StateRecord]:
    """Return the evaluated states of an iterative run in order; no states of other runs."""
    if not experiment.is_iterative:
        return []
    jobs_by_state = _jobs(session, experiment)
    developed = development_results(session, experiment)
    results = {one.step: one for one in developed}
    reporting = experiment.state in _REPORTING
    reported = reported_updates(session, experiment, developed) if reporting else None
    steps = select(Update.step).where(Update.experiment_id == experiment.id)
    rewards = [
        _mean(Step.from_json(text).scores)
        for text in session.exec(steps.order_by(col(Update.index)))
    ]
    rewards.append(_mean(rewards_of(session, experiment, len(rewards))))
    return [
        StateRecord(
            updates=updates,
            digest=state_digest(session, experiment, updates),
            mean_reward=rewards[updates],
            result=results.get(updates),
            development=jobs.get(Split.DEVELOPMENT),
            heldout=jobs.get(Split.HELDOUT),
            reported=updates == reported,
        )
        for updates, jobs in sorted(jobs_by_state.items())
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
    jobs_by_state: dict[int, dict[Split, Job]] = {}
    for job in done:
        jobs_by_state.setdefault(BASE_INDEX - job.candidate, {})[job.split] = job
    return dict(jobs_by_state)


def _mean(rewards: Sequence[float | None]) -> float | None:
    scored = [reward for reward in rewards if reward is not None]
    return fsum(scored) / len(scored) if scored else None
