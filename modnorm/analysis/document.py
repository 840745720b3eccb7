"""The results of a run as one JSON document that depends on the experiment alone."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal, TypedDict

from modnorm.analysis.environments import environments_of, mixed_settings
from modnorm.analysis.evaluations import BudgetEntry, ensemble_cost, run_budget
from modnorm.analysis.run_data import EnsembleRow, RunData
from modnorm.analysis.statistics import prefix_statistics, vote_agreement

SCHEMA: Literal["modnorm-results-1"] = "modnorm-results-1"


class BaseEntry(TypedDict):
    """The unperturbed model."""

    selection_reward: float | None
    heldout_metric: float | None
    selection_accuracy: float | None


class ExpertEntry(TypedDict):
    """An expert of some (N, K); `rank` is its place in the whole population, from 1."""

    rank: int
    index: int
    seed: int
    selection_reward: float
    heldout_metric: float | None


class EnsembleEntry(TypedDict):
    """One (N, K)."""

    population: int
    ensemble_size: int
    experts: list[int]
    metric: float
    correct: int
    rows: int
    agreement: dict[str, object] | None
    budget: dict[str, int]
    """Model-prompt evaluations of this (N, K) alone: answers that are stored."""


class CandidatesEntry(TypedDict):
    """How many candidates there are, and the indices of those that failed."""

    total: int
    scored: int
    failed: list[int]


class ResultsDocument(TypedDict):
    """Content of `results.json`."""

    schema: str
    spec: Mapping[str, object]
    provenance: Mapping[str, object]
    data: Mapping[str, Mapping[str, object]]
    """Manifest of the rows: `selection` and `heldout`, each a `RowsRecord`."""
    overlap: int
    """Held-out rows that are selection rows too: what was selected for is no test."""
    base: BaseEntry
    candidates: CandidatesEntry
    experts: list[ExpertEntry]
    statistics: list[dict[str, object]]
    ensembles: list[EnsembleEntry]
    budget: BudgetEntry
    mixed_environments: dict[str, list[str]]
    """Settings in which the machines that answered differ, with the values."""


def results_document(run: RunData) -> ResultsDocument:
    """Build the document; it holds no time, no worker and no id.

    Environments are in it only where they differ within the run: a deviation that the figures
    must not be read without.
    """
    base = run.base.selection_reward
    return ResultsDocument(
        schema=SCHEMA,
        spec=run.spec,
        provenance=run.provenance,
        data={name: asdict(record) for name, record in run.data.items()},
        overlap=run.overlap,
        base=BaseEntry(
            selection_reward=base,
            heldout_metric=run.base.heldout_metric,
            selection_accuracy=_share(run.base.selection_correct, run.base.selection_answers),
        ),
        candidates=CandidatesEntry(
            total=len(run.candidates),
            scored=len(run.order),
            failed=[c.index for c in run.candidates if c.selection_reward is None],
        ),
        experts=_experts(run),
        statistics=[asdict(prefix_statistics(run.rewards, n, base)) for n in run.prefixes],
        ensembles=[_ensemble(run, ensemble) for ensemble in sorted(run.ensembles, key=_size)],
        budget=run_budget(run),
        mixed_environments=mixed_settings(environments_of(run)),
    )


def _experts(run: RunData) -> list[ExpertEntry]:
    chosen = {index for ensemble in run.ensembles for index in ensemble.experts}
    entries = []
    for place, index in enumerate(run.order, 1):
        candidate = run.candidates[index]
        if index in chosen and candidate.selection_reward is not None:
            entries.append(
                ExpertEntry(
                    rank=place,
                    index=index,
                    seed=candidate.seed,
                    selection_reward=candidate.selection_reward,
                    heldout_metric=candidate.heldout_metric,
                )
            )
    return entries


def _ensemble(run: RunData, ensemble: EnsembleRow) -> EnsembleEntry:
    votes = run.votes.get(_size(ensemble))
    agreement = asdict(vote_agreement(votes, ensemble.ensemble_size)) if votes else None
    return EnsembleEntry(
        population=ensemble.population,
        ensemble_size=ensemble.ensemble_size,
        experts=list(ensemble.experts),
        metric=ensemble.metric,
        correct=ensemble.correct,
        rows=ensemble.rows,
        agreement=agreement,
        budget=ensemble_cost(run, ensemble).as_dict(),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _size(ensemble: EnsembleRow) -> tuple[int, int]:
    return ensemble.population, ensemble.ensemble_size
