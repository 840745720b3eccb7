"""Experiments, candidates and states with their jobs, as the stores return them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from modnorm.baselines.updates import DevelopmentResult
from modnorm.services.aggregator.storage.result_tables import Ensemble
from modnorm.services.aggregator.storage.tables import Candidate, Experiment, Job
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
