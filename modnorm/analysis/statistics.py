"""Statistics of a population prefix and of a vote."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import cast

import numpy as np
from typing_extensions import TypedDict

from modnorm.analysis.run_data import CandidateRow, EnsembleRow, RunData
from modnorm.analysis.run_files import STARTING
from modnorm.analysis.uncertainty import ConfidenceInterval, accuracy_interval
from modnorm.errors import InvalidInputError
from modnorm.search.budgets import Budget, CostEntry
from modnorm.search.voting import RowVote


class PrefixStatistics(TypedDict):
    """Selection rewards among the first N candidates; failed ones are excluded."""

    population: int
    scored: int
    mean: float
    sample_sd: float | None
    """None with fewer than two candidates."""
    density: float | None
    """Fraction of candidates strictly better than the base; None when the base is not known."""
    top1: float
    top5_mean: float | None
    """None with fewer than five candidates."""
    top10_mean: float | None
    """None with fewer than ten candidates."""
    p90: float
    p95: float
    p99: float
    """Percentiles with linear interpolation."""


class VoteAgreement(TypedDict):
    """How far the K experts of an ensemble agree on the held-out rows."""

    mean_valid: float
    """Valid answers a row."""
    mean_support: float | None
    """Mean share of the valid answers that the winner has; None without any valid answer."""
    unanimous: float
    """Fraction of rows on which all K experts give the same answer."""
    no_vote: float
    """Fraction of rows without any valid answer."""
    any_correct: float
    """Fraction of rows that at least one expert answers right, the accuracy of a perfect vote."""
    correct_support: list[int]
    """Rows by the number of experts that are right, 0 to K."""


def prefix_statistics(
    rewards: Sequence[float | None], population: int, base: float | None
) -> PrefixStatistics:
    """Summarise the first `population` candidates; failed ones are excluded."""
    scored = [reward for reward in rewards[:population] if reward is not None]
    if not scored:
        raise InvalidInputError(f"none of the first {population} candidates is scored")
    best = sorted(scored, reverse=True)
    p90, p95, p99 = (float(q) for q in np.percentile(scored, (90, 95, 99)))
    return PrefixStatistics(
        population=population,
        scored=len(scored),
        mean=float(np.mean(scored)),
        sample_sd=float(np.std(scored, ddof=1)) if len(scored) > 1 else None,
        density=None if base is None else sum(r > base for r in scored) / len(scored),
        top1=best[0],
        top5_mean=float(np.mean(best[:5])) if len(best) >= 5 else None,
        top10_mean=float(np.mean(best[:10])) if len(best) >= 10 else None,
        p90=p90,
        p95=p95,
        p99=p99,
    )


def vote_agreement(votes: Sequence[RowVote], ensemble_size: int) -> VoteAgreement:
    """Summarise the votes of one ensemble on at least one row; every expert answered all rows."""
    rows = len(votes)
    shares = [vote.support / vote.valid for vote in votes if vote.valid]
    right = Counter(vote.correct_support for vote in votes)
    return VoteAgreement(
        mean_valid=sum(vote.valid for vote in votes) / rows,
        mean_support=fmean(shares) if shares else None,
        unanimous=sum(vote.support == ensemble_size for vote in votes) / rows,
        no_vote=sum(vote.valid == 0 for vote in votes) / rows,
        any_correct=sum(vote.correct_support > 0 for vote in votes) / rows,
        correct_support=[right[count] for count in range(ensemble_size + 1)],
    )


class BaseCost(TypedDict):
    """Evaluations of the unperturbed model, by split."""

    selection: int
    heldout: int


class BudgetEntry(CostEntry):
    """Evaluations of a whole run."""

    base: BaseCost
    """The unperturbed model, outside the main run."""


def run_budget(run: RunData) -> BudgetEntry:
    """Count the answers of a run; experts that several ensembles share are counted once."""
    counted = _count(run, run.candidates, run.candidates)
    base = BaseCost(selection=run.base.selection_answers, heldout=run.base.heldout_answers)
    return BudgetEntry(**counted.as_dict(), base=base)


def ensemble_cost(run: RunData, ensemble: EnsembleRow) -> Budget:
    """Count the evaluations of one (N, K) alone: of the first N candidates and its K experts."""
    experts = [run.candidates[index] for index in ensemble.experts if index >= 0]
    return _count(run, run.candidates[: ensemble.population], experts)


def repeated_attempts(run: RunData) -> dict[str, int]:
    """Count the repeated attempts by phase; their answers are not stored."""
    return {
        "selection": sum(max(0, each.attempts - 1) for each in run.candidates),
        "heldout": sum(max(0, each.heldout_attempts - 1) for each in run.candidates),
    }


def timing_scope(run: RunData, phases: Mapping[str, float]) -> dict[str, object]:
    """Split the time of a run as the paper does (app. "Timing scope"), in seconds.

    Search is the scale map, and writing, answering, scoring and restoring each candidate. End to
    end adds setup, the engine's start included, and the vote. Calibration and the unperturbed
    model are outside.
    """
    base = run.base
    device = {
        "search": sum(candidate.seconds for candidate in run.candidates),
        "final": sum(candidate.heldout_seconds for candidate in run.candidates),
        "base": base.seconds + base.heldout_seconds,
    }
    wall = {
        "setup": phases.get("pending", 0.0) + phases.get(STARTING, 0.0),
        "search": phases.get("sampling", 0.0) + phases.get("selecting", 0.0),
        "final": phases.get("voting", 0.0),
    }
    workers = {candidate.worker for candidate in run.candidates if candidate.worker}
    models = (base, *run.candidates)
    here = {each.worker for each in models if not each.reused}
    here |= {each.heldout_worker for each in models if not each.heldout_reused}
    # The base's share of the wall is unknown where several workers shared it.
    of_base = base.seconds * (not base.reused) + base.heldout_seconds * (not base.heldout_reused)
    deducted = of_base if len(here - {""}) == 1 else 0.0
    return {
        "search": phases.get("sampling", 0.0) + device["search"],
        "end_to_end": max(0.0, sum(wall.values()) - deducted),
        "workers": len(workers),
        "wall": wall,
        "device": device,
        "calibration": phases.get("calibrating", 0.0),
    }


def _count(
    run: RunData, searched: Sequence[CandidateRow], experts: Sequence[CandidateRow]
) -> Budget:
    """Count answers, those of an iterative run's states too, except monitored states."""
    reported = (state.heldout_answers for state in run.states if state.reported)
    return Budget(
        search=sum(each.selection_answers for each in searched),
        development=sum(state.development_answers for state in run.states),
        final=sum(each.heldout_answers for each in experts) + sum(reported),
    )


class StateEntry(TypedDict):
    """An evaluated state: a `StateRow` without its counts."""

    updates: int
    lineage: str
    mean_reward: float | None
    development_metric: float | None
    development_reward: float | None
    heldout_metric: float | None
    heldout_interval: ConfidenceInterval | None


class IterativeEntry(TypedDict):
    """The entry of an iterative run in `results.json`."""

    states: list[StateEntry]
    """States that were evaluated, in order."""
    reported: int
    """Updates of the one that the held-out figures are of."""
    ledger: dict[str, dict[str, int]]
    """By purpose: models attempted and completed, model-prompt pairs, tokens."""
    main_run: int
    """Model-prompt pairs of search, development and final evaluation together."""


def heldout_interval(run: RunData, metric: float | None) -> ConfidenceInterval | None:
    """Return the interval of one model's metric; None unless the run's metric is the accuracy."""
    votes = (accuracy_interval(one.metric, one.rows, one.correct) for one in run.ensembles)
    return accuracy_interval(metric, run.data["heldout"]["rows"]) if all(votes) else None


def iterative_entry(run: RunData) -> IterativeEntry | None:
    """Return the entry of an iterative run; None for another run."""
    if not run.states:
        return None
    names = StateEntry.__annotations__.keys() - {"heldout_interval"}
    states = [
        {
            **{name: getattr(state, name) for name in names},
            "heldout_interval": heldout_interval(run, state.heldout_metric),
        }
        for state in run.states
    ]
    ledger = _ledger(run)
    return IterativeEntry(
        states=cast("list[StateEntry]", states),
        reported=next(state.updates for state in run.states if state.reported),
        ledger=ledger,
        main_run=sum(one["pairs"] for name, one in ledger.items() if name != "monitoring"),
    )


def _ledger(run: RunData) -> dict[str, dict[str, int]]:
    """Count the cost of an iterative run by purpose, from its stored answers.

    States other than the reported one are only monitored. The unperturbed model on the selection
    rows is outside; its held-out and development answers are those of the first state.
    """
    monitoring, final = (
        [
            (each.heldout_attempts, each.heldout_answers, each.heldout_tokens)
            for each in run.states
            if each.heldout_answers and each.reported is reported
        ]
        for reported in (False, True)
    )
    models = {
        "search": [
            (each.attempts, each.selection_answers, each.selection_tokens)
            for each in run.candidates
        ],
        "development": [
            (each.development_attempts, each.development_answers, each.development_tokens)
            for each in run.states
            if each.development_answers
        ],
        "monitoring": monitoring,
        "final": final,
    }
    return {
        purpose: {
            "attempted": sum(attempts for attempts, _, _ in counts),
            "completed": sum(pairs > 0 for _, pairs, _ in counts),
            "pairs": sum(pairs for _, pairs, _ in counts),
            "tokens": sum(tokens for _, _, tokens in counts),
        }
        for purpose, counts in models.items()
    }
