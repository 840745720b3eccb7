"""A finished search by another scorer: new scores, new ranking, new votes.

The completions stay what they are. So the vote of the experts that were selected is known under
any scorer; the vote of those that the new scorer would have selected is known where all of them
answered the held-out rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from modnorm.search.ballots import Ballot, count_votes
from modnorm.search.ranking import rank, select_experts
from modnorm.tasks.protocol import Row, Task


class VotedEnsemble(Protocol):
    """An ensemble as it was voted; `modnorm.v1.EnsembleResult` is one."""

    @property
    def population(self) -> int:
        """N."""

    @property
    def ensemble_size(self) -> int:
        """K."""

    @property
    def experts(self) -> Sequence[int]:
        """Candidate indices, best first."""

    @property
    def metric(self) -> float:
        """Held-out metric of the vote, a fraction."""

    @property
    def correct(self) -> int:
        """Rows whose vote is right."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure by the old scorer and by the new one; None where it is not known."""

    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class RescoredModel:
    """A candidate, or the base, by both scorers."""

    index: int
    """-1 for the base."""
    selection_reward: Figure
    """Mean; None where scoring failed."""
    heldout_metric: Figure
    """Of the model alone; None where it did not answer the held-out rows."""
    changed_selection: int
    """Selection answers that are judged otherwise."""
    changed_heldout: int


@dataclass(frozen=True, slots=True)
class RescoredSingle:
    """The candidate that is ranked first in the whole population."""

    index: int
    """The one that the old scorer ranks first."""
    metric: Figure
    """Its held-out metric."""
    reselected: int
    """The one that the new scorer ranks first."""
    reselected_metric: float | None
    """Its held-out metric by the new scorer; None where it did not answer the held-out rows."""


@dataclass(frozen=True, slots=True)
class Reselection:
    """The experts that the new scorer selects, and their vote."""

    experts: tuple[int, ...]
    """Candidate indices, best first."""
    missing: tuple[int, ...]
    """Those that did not answer the held-out rows, ascending; with any of them, no vote."""
    metric: float | None
    correct: int | None


@dataclass(frozen=True, slots=True)
class RescoredEnsemble:
    """One (N, K) by both scorers."""

    population: int
    ensemble_size: int
    experts: tuple[int, ...]
    """As they were selected, best first."""
    metric: Figure
    """Held-out metric of their vote."""
    correct: Figure
    """Rows whose vote is right."""
    reselected: Reselection


def rescored_single(models: Sequence[RescoredModel]) -> RescoredSingle:
    """Return what becomes of the best candidate.

    Args:
        models: The population in candidate order, without the base.
    """
    first = rank([model.selection_reward.old for model in models], len(models))[0]
    again = rank([model.selection_reward.new for model in models], len(models))[0]
    return RescoredSingle(
        index=first,
        metric=models[first].heldout_metric,
        reselected=again,
        reselected_metric=models[again].heldout_metric.new,
    )


def rescored_ensembles(
    ensembles: Sequence[VotedEnsemble],
    models: Sequence[RescoredModel],
    ballots: Mapping[int, Ballot],
    task: Task,
    rows: Sequence[Row],
) -> tuple[RescoredEnsemble, ...]:
    """Vote anew in every ensemble, with its old experts and with its new ones.

    Args:
        ensembles: The ensembles as they were voted: every (N, K) of some N and some K.
        models: The population in candidate order, without the base.
        ballots: By the new scorer, of each candidate that answered the held-out rows.
        task: The new scorer.
        rows: The held-out rows.
    """
    selection = select_experts(
        [model.selection_reward.new for model in models],
        sorted({ensemble.population for ensemble in ensembles}),
        sorted({ensemble.ensemble_size for ensemble in ensembles}),
    )
    vote = _Vote(ballots, task, rows)
    return tuple(
        vote.again(ensemble, selection[ensemble.population, ensemble.ensemble_size])
        for ensemble in sorted(ensembles, key=lambda each: (each.population, each.ensemble_size))
    )


@dataclass(frozen=True, slots=True)
class _Vote:
    ballots: Mapping[int, Ballot]
    task: Task
    rows: Sequence[Row]

    def again(self, ensemble: VotedEnsemble, reselected: tuple[int, ...]) -> RescoredEnsemble:
        metric, correct = self._count(ensemble.experts)
        return RescoredEnsemble(
            population=ensemble.population,
            ensemble_size=ensemble.ensemble_size,
            experts=tuple(ensemble.experts),
            metric=Figure(ensemble.metric, metric),
            correct=Figure(ensemble.correct, correct),
            reselected=self._reselection(reselected),
        )

    def _reselection(self, experts: tuple[int, ...]) -> Reselection:
        missing = tuple(sorted(set(experts) - self.ballots.keys()))
        if missing:
            return Reselection(experts, missing, metric=None, correct=None)
        metric, correct = self._count(experts)
        return Reselection(experts, missing, metric, correct)

    def _count(self, experts: Sequence[int]) -> tuple[float, int]:
        """Return metric and number of right votes."""
        votes = count_votes([self.ballots[expert] for expert in experts])
        correct = [vote.correct for vote in votes]
        return self.task.metric(self.rows, correct), sum(correct)
