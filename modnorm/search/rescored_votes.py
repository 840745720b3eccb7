"""A finished search judged by another scorer: new scores, new ranking, new votes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modnorm.search.ranking import rank, select_experts
from modnorm.search.voting import Ballot, count_votes
from modnorm.tasks import task_errors
from modnorm.tasks.protocol import Row, Task

if TYPE_CHECKING:
    from modnorm.analysis.run_data import EnsembleRow


@dataclass(frozen=True, slots=True)
class OldAndNew:
    """One figure by the old scorer and by the new one; None if unknown."""

    old: float | None
    new: float | None


@dataclass(frozen=True, slots=True)
class RescoredModel:
    """A candidate, or the base, judged by both scorers."""

    index: int
    """-1 for the base."""
    selection_reward: OldAndNew
    """Mean reward; None if scoring failed."""
    heldout_metric: OldAndNew
    """Metric of the model alone; None if it did not answer the held-out rows."""
    changed_selection: int
    """Selection answers that the two scorers judge differently."""
    changed_heldout: int


@dataclass(frozen=True, slots=True)
class RescoredRankOne:
    """The candidate at rank 1 by selection in the whole population, by both scorers."""

    index: int
    """The candidate that the old scorer ranks first."""
    metric: OldAndNew
    """Its held-out metric."""
    reselected: int
    """The candidate that the new scorer ranks first."""
    reselected_metric: float | None
    """Its held-out metric by the new scorer; None if it did not answer the held-out rows."""


@dataclass(frozen=True, slots=True)
class Reselection:
    """The experts that the new scorer selects, and their vote."""

    experts: tuple[int, ...]
    """Candidate indices, best first."""
    missing: tuple[int, ...]
    """Experts that did not answer the held-out rows, ascending; if there are any, no vote."""
    metric: float | None
    correct: int | None


@dataclass(frozen=True, slots=True)
class RescoredEnsemble:
    """One (N, K) judged by both scorers."""

    population: int
    ensemble_size: int
    experts: tuple[int, ...]
    """The selected experts, best first."""
    metric: OldAndNew
    """Held-out metric of their vote."""
    correct: OldAndNew
    """Rows whose vote is right."""
    reselected: Reselection


def rescored_rank_one(models: Sequence[RescoredModel]) -> RescoredRankOne:
    """Return the candidate at rank 1 by selection, by each scorer."""
    first = rank([model.selection_reward.old for model in models], len(models))[0]
    again = rank([model.selection_reward.new for model in models], len(models))[0]
    return RescoredRankOne(
        index=first,
        metric=models[first].heldout_metric,
        reselected=again,
        reselected_metric=models[again].heldout_metric.new,
    )


def rescored_ensembles(
    ensembles: "Sequence[EnsembleRow]",
    models: Sequence[RescoredModel],
    ballots: Mapping[int, Ballot],
    task: Task,
    rows: Sequence[Row],
) -> tuple[RescoredEnsemble, ...]:
    """Repeat the vote of every ensemble, with its old experts and with its new ones."""
    selection = select_experts(
        [model.selection_reward.new for model in models],
        sorted({ensemble.population for ensemble in ensembles}),
        sorted({ensemble.ensemble_size for ensemble in ensembles}),
    )

    def count(experts: Sequence[int]) -> tuple[float, int]:
        """Return metric and number of right votes."""
        votes = count_votes([ballots[expert] for expert in experts])
        correct = [vote.correct for vote in votes]
        return task_errors.metric(task, rows, correct), sum(correct)

    rescored = []
    for ensemble in sorted(ensembles, key=lambda each: (each.population, each.ensemble_size)):
        metric, correct = count(ensemble.experts)
        experts = selection[ensemble.population, ensemble.ensemble_size]
        missing = tuple(sorted(set(experts) - ballots.keys()))
        voted = (None, None) if missing else count(experts)
        rescored.append(
            RescoredEnsemble(
                population=ensemble.population,
                ensemble_size=ensemble.ensemble_size,
                experts=ensemble.experts,
                metric=OldAndNew(ensemble.metric, metric),
                correct=OldAndNew(ensemble.correct, correct),
                reselected=Reselection(experts, missing, *voted),
            )
        )
    return tuple(rescored)
