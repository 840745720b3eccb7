"""Results of the states of iterative runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from threading import Lock

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
from modnorm.services.aggregator.experiments.records import StateRecord
from modnorm.services.aggregator.storage.states import (
    ExperimentState,
    JobState,
    Split,
    state_index,
)
from modnorm.services.aggregator.storage.tables import Experiment, Job, Update
from modnorm.services.common.bounded_dict import BoundedDict

KEPT = 64
"""Runs whose past is cached, at some hundred bytes per update."""
_REPORTING = (ExperimentState.VOTING, ExperimentState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class _Past:
    """The part of a run that no longer changes."""

    results: tuple[DevelopmentResult, ...] = ()
    digests: tuple[str, ...] = ()
    """Digest of the state after each update."""
    rewards: tuple[float | None, ...] = ()
    """Mean reward of each update's candidates."""


class RunStates:
    """Reads states of iterative runs and caches their past; used by several threads."""

    def __init__(self) -> None:
        self._pasts: BoundedDict[tuple[str, float], _Past] = BoundedDict(KEPT)
        self._lock = Lock()

    def states(self, session: Session, experiment: Experiment) -> list[StateRecord]:
        """Return the evaluated states of an iterative run in order; no states of other runs."""
        if not experiment.is_iterative:
            return []
        jobs_by_state = _jobs(session, experiment)
        past = self._past(session, experiment)  # read last, so that it contains these states
        base = state_digest(session, experiment, 0)
        results = {one.step: one for one in past.results}
        reporting = experiment.state in _REPORTING
        reported = reported_updates(session, experiment, past.results) if reporting else None
        return [
            StateRecord(
                updates=updates,
                digest=past.digests[updates - 1] if updates else base,
                mean_reward=_reward_around(session, experiment, updates, past),
                result=results.get(updates),
                development=jobs.get(Split.DEVELOPMENT),
                heldout=jobs.get(Split.HELDOUT),
                reported=updates == reported,
            )
            for updates, jobs in sorted(jobs_by_state.items())
        ]

    def _past(self, session: Session, experiment: Experiment) -> _Past:
        """Return the cached past of a run, extended by its newer updates."""
        known = self._pasts.get(experiment.key, _Past())
        steps = session.exec(
            select(Update.digest, Update.step)
            .where(Update.experiment_id == experiment.id, col(Update.index) >= len(known.digests))
            .order_by(col(Update.index))
        ).all()
        last = known.results[-1].step if known.results else -1
        past = _Past(
            (*known.results, *development_results(session, experiment, after=last)),
            (*known.digests, *(digest for digest, _ in steps)),
            (*known.rewards, *(_mean(Step.from_json(text).scores) for _, text in steps)),
        )
        with self._lock:
            self._pasts[experiment.key] = past
        return past


def _reward_around(
    session: Session, experiment: Experiment, updates: int, past: _Past
) -> float | None:
    """Return the mean reward of the candidates around a state; for the present state, so far."""
    if updates < len(past.rewards):
        return past.rewards[updates]
    return _mean(rewards_of(session, experiment, updates))


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
