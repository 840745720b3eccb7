"""The results of a run as one JSON document that depends on the experiment alone."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, cast

from typing_extensions import TypedDict

from modnorm.analysis.environments import describe_mixed, environments_of, mixed_settings
from modnorm.analysis.run_data import CandidateRow, EnsembleRow, RowsRecord, RunData, StateRow
from modnorm.analysis.statistics import (
    BudgetEntry,
    IterativeEntry,
    PrefixStatistics,
    VoteAgreement,
    ensemble_cost,
    heldout_interval,
    iterative_entry,
    prefix_statistics,
    run_budget,
    vote_agreement,
)
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval
from modnorm.search.budgets import CostEntry

SCHEMA: Literal["modnorm-results-3"] = "modnorm-results-3"


_MANY_TRUNCATED = 0.5
"""Share of answers that are cut off above which readers are warned."""


class _NamedSection(TypedDict):
    name: str


class _MethodSection(_NamedSection):
    radius: NotRequired[float | None]


class _PopulationSection(TypedDict):
    size: NotRequired[int]
    seed: NotRequired[int]
    noise: NotRequired[str]


class _EngineSection(TypedDict):
    numerics: NotRequired[str]


class _SpecFields(TypedDict):
    """The fields of the spec that readers of results use; the document has all."""

    name: str
    model: _NamedSection
    task: _NamedSection
    method: _MethodSection
    population: _PopulationSection
    engine: NotRequired[_EngineSection]


class _DataEntry(TypedDict):
    selection: RowsRecord
    heldout: RowsRecord


class AnswerShares(TypedDict):
    """Stored answers of some models to some rows, and shares of them; None without answers."""

    answers: int
    valid: float | None
    """Answers that give a vote."""
    truncated: float | None
    """Answers that the completion cap ended."""


class BaseEntry(TypedDict):
    """The unperturbed model."""

    selection_reward: float | None
    heldout_metric: float | None
    heldout_interval: ConfidenceInterval | None
    selection_accuracy: float | None
    selection_shares: AnswerShares
    heldout_shares: AnswerShares


class ExpertEntry(TypedDict):
    """An expert of some (N, K); `rank` is its place in the whole population, from 1."""

    rank: int
    index: int
    seed: int
    selection_reward: float
    heldout_metric: float | None
    heldout_interval: ConfidenceInterval | None
    heldout_shares: AnswerShares


class EnsembleEntry(TypedDict):
    """One (N, K)."""

    population: int
    ensemble_size: int
    experts: list[int]
    metric: float
    interval: ConfidenceInterval | None
    """Wilson interval of the metric; None if the metric is not a fraction of the rows."""
    correct: int
    rows: int
    agreement: VoteAgreement
    shares: AnswerShares
    """Of the answers of its experts to the held-out rows."""
    budget: CostEntry
    """Model-prompt evaluations of this (N, K) alone: answers that are stored."""


class CandidatesEntry(TypedDict):
    """The number of candidates, and the indices of those that failed."""

    total: int
    scored: int
    failed: list[int]


class ResultsDocument(TypedDict):
    """Content of `results.json`."""

    schema: str
    spec: _SpecFields
    provenance: Mapping[str, object]
    data: _DataEntry
    """Manifest of the rows."""
    overlap: int
    """Held-out rows that have the prompt of a selection row: they do not test the selection."""
    base: BaseEntry
    candidates: CandidatesEntry
    selection_shares: AnswerShares
    """Of the answers of all candidates to the selection rows."""
    experts: list[ExpertEntry]
    statistics: list[PrefixStatistics]
    ensembles: list[EnsembleEntry]
    budget: BudgetEntry
    iterative: IterativeEntry | None
    """States of an iterative run, whose only expert is a state; None for other runs."""
    mixed_environments: dict[str, list[str]]
    """Settings in which the machines that answered differ, with the values."""


def results_document(run: RunData) -> ResultsDocument:
    """Build the document; it holds no time, no worker and no id.

    Environments are included only if they differ within the run, because a reader of the
    figures must know this.
    """
    base = run.base.selection_reward
    return ResultsDocument(
        schema=SCHEMA,
        spec=cast("_SpecFields", run.spec),
        provenance=run.provenance,
        data=cast("_DataEntry", run.data),
        overlap=run.overlap,
        base=BaseEntry(
            selection_reward=base,
            heldout_metric=run.base.heldout_metric,
            heldout_interval=heldout_interval(run, run.base.heldout_metric),
            selection_accuracy=_share(run.base.selection_correct, run.base.selection_answers),
            selection_shares=_shares([run.base], "selection"),
            heldout_shares=_shares([run.base], "heldout"),
        ),
        candidates=CandidatesEntry(
            total=len(run.candidates),
            scored=len(run.order),
            failed=[each.index for each in run.candidates if each.selection_reward is None],
        ),
        selection_shares=_shares(run.candidates, "selection"),
        experts=_experts(run),
        statistics=[prefix_statistics(run.rewards, n, base) for n in run.prefixes],
        ensembles=[
            _ensemble(run, ensemble)
            for ensemble in sorted(run.ensembles, key=lambda each: each.place)
        ],
        budget=run_budget(run),
        iterative=iterative_entry(run),
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
                    heldout_interval=heldout_interval(run, candidate.heldout_metric),
                    heldout_shares=_shares([candidate], "heldout"),
                )
            )
    return entries


def _ensemble(run: RunData, ensemble: EnsembleRow) -> EnsembleEntry:
    voters = [run.candidates[index] for index in ensemble.experts if index >= 0]
    states = [state for state in run.states if state.reported]
    return EnsembleEntry(
        population=ensemble.population,
        ensemble_size=ensemble.ensemble_size,
        experts=list(ensemble.experts),
        metric=ensemble.metric,
        interval=accuracy_interval(ensemble.metric, ensemble.rows, ensemble.correct),
        correct=ensemble.correct,
        rows=ensemble.rows,
        agreement=vote_agreement(run.votes[ensemble.place], ensemble.ensemble_size),
        shares=_shares([*voters, *states], "heldout"),
        budget=ensemble_cost(run, ensemble).as_dict(),
    )


def remarks(document: ResultsDocument) -> dict[str, str | None]:
    """Return what readers of the figures should know, by its name in the report; None for none."""
    return {
        "overlap": describe_overlap(document),
        "truncated": describe_truncated(document),
        "lost": describe_lost_search(document),
        "mixed": describe_mixed(document["mixed_environments"]),
    }


def describe_truncated(document: ResultsDocument) -> str | None:
    """Warn of answers that the completion cap cut off; None unless they are over half of some."""
    shares, trained = {"selection": document["selection_shares"]}, document["iterative"]
    for one in document["ensembles"]:
        ensemble = f"N={one['population']} K={one['ensemble_size']}"
        shares[f"after {trained['reported']} updates" if trained else ensemble] = one["shares"]
    cut_off = {place: each["truncated"] or 0.0 for place, each in shares.items()}
    most = max(cut_off, key=cut_off.__getitem__)
    if cut_off[most] <= _MANY_TRUNCATED:
        return None
    cap = document["provenance"].get("max_tokens", "the most")
    share = f"{100 * cut_off[most]:.0f} % of the answers"
    return f"{most}: {share} were cut off at {cap} tokens (raise max_tokens)."


def describe_overlap(document: ResultsDocument) -> str | None:
    """Say how many held-out rows have the prompts of selection rows; None if there are none."""
    count = document["overlap"]
    if not count:
        return None
    rows = document["data"]["heldout"]["rows"]
    return (
        f"{count} of {rows} held-out rows have the prompts of selection rows: they do not test "
        "the selection."
    )


def describe_lost_search(document: ResultsDocument) -> str | None:
    """Say that no candidate scored above the base; None if one did, or nothing was perturbed.

    Method `base` perturbs nothing: its radius is 0.
    """
    base, experts = document["base"]["selection_reward"], document["experts"]
    has_radius = bool(document["spec"]["method"].get("radius"))
    if document["iterative"] or not experts or base is None or not has_radius:
        return None
    best = max(expert["selection_reward"] for expert in experts)
    if best > base:
        return None
    advice = (
        "The base answers all of them right: take harder rows."
        if document["base"]["selection_accuracy"] == 1
        else "The radius may be too large or too small: `modnorm tune` or `modnorm match` chooses "
        "one."
    )
    return (
        f"No candidate scored above the base on the selection rows (best reward {best:.4f}, base "
        f"reward {base:.4f}). {advice}"
    )


def _shares(
    models: Sequence[CandidateRow | StateRow], split: Literal["selection", "heldout"]
) -> AnswerShares:
    answers, valid, truncated = (
        sum(getattr(each, f"{split}_{name}") for each in models)
        for name in ("answers", "valid", "truncated")
    )
    return AnswerShares(
        answers=answers, valid=_share(valid, answers), truncated=_share(truncated, answers)
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
