import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.analysis.document import results_document
from modnorm.analysis.run_files import STARTING
from modnorm.analysis.statistics import (
    ensemble_cost,
    prefix_statistics,
    repeated_attempts,
    run_budget,
    timing_scope,
    vote_agreement,
)
from modnorm.errors import InvalidInputError
from modnorm.search.budgets import ensemble_budget
from modnorm.search.voting import RowVote


def test_figures_of_a_small_prefix():
    figures = prefix_statistics([0.1, None, 0.3, 0.2, 9.0], 4, base=0.2)
    assert (figures["population"], figures["scored"]) == (4, 3)
    assert figures["mean"] == pytest.approx(0.2)
    assert figures["sample_sd"] == pytest.approx(0.1)
    assert figures["density"] == pytest.approx(1 / 3)
    assert figures["top1"] == 0.3
    assert figures["top5_mean"] is None
    assert figures["top10_mean"] is None
    assert figures["p90"] == pytest.approx(0.28)
    assert prefix_statistics([0.3, None], 2, base=None)["sample_sd"] is None


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.floats(0, 1))
def test_figures_are_those_of_literal_loops(rewards, base):
    figures = prefix_statistics(rewards, len(rewards), base)
    mean = math.fsum(rewards) / len(rewards)
    variance = math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1)
    best = sorted(rewards, reverse=True)
    assert figures["mean"] == pytest.approx(mean)
    assert figures["sample_sd"] == pytest.approx(math.sqrt(variance), abs=1e-9)
    assert figures["density"] == len([r for r in rewards if r > base]) / len(rewards)
    assert figures["top1"] == best[0]
    for count, found in ((5, figures["top5_mean"]), (10, figures["top10_mean"])):
        expected = sum(best[:count]) / count if len(rewards) >= count else None
        assert found == (None if expected is None else pytest.approx(expected))
    for q, found in ((0.9, figures["p90"]), (0.95, figures["p95"]), (0.99, figures["p99"])):
        assert found == pytest.approx(float(np.quantile(rewards, q)), abs=1e-12)


def test_a_prefix_without_scores_has_no_figures():
    with pytest.raises(InvalidInputError, match="none of the first 2"):
        prefix_statistics([None, None, 0.5], 2, base=0.1)


def vote(valid, support, correct_support, *, correct=False):
    answer = "1" if valid else None
    return RowVote(answer, correct, valid, support, correct_support)


def test_agreement_of_a_vote():
    none = vote(0, 0, 0)
    votes = [vote(3, 3, 3, correct=True), vote(2, 1, 1), none, vote(1, 1, 0), none]
    agreement = vote_agreement(votes, 3)
    assert agreement["mean_valid"] == 1.2
    assert agreement["mean_support"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert agreement["unanimous"] == 0.2
    assert agreement["no_vote"] == 0.4
    assert agreement["any_correct"] == 0.4
    assert agreement["correct_support"] == [3, 1, 0, 1]


SELECTION, HELDOUT = 40, 60
PHASES = {"pending": 1.0, "calibrating": 5.0, "sampling": 2.0, "selecting": 80.0, "voting": 20.0}


def test_an_undisturbed_run_costs_what_the_formula_says(run):
    for ensemble in run.ensembles:
        planned = ensemble_budget(
            ensemble.population, ensemble.ensemble_size, HELDOUT, selection_rows=SELECTION
        )
        assert ensemble_cost(run, ensemble) == planned


def test_a_run_counts_experts_of_several_ensembles_once(run):
    experts = {index for ensemble in run.ensembles for index in ensemble.experts}
    budget = run_budget(run)
    assert budget["search"] == 48 * SELECTION
    assert budget["final"] == len(experts) * HELDOUT
    assert budget["total"] == budget["search"] + budget["final"]
    assert budget["final"] < sum(ensemble_cost(run, each).final for each in run.ensembles)
    assert budget["base"] == {"selection": SELECTION, "heldout": HELDOUT}


def test_answers_that_were_saved_are_not_counted(make_run):
    run = make_run(prefixes=(20,), sizes=(5,), failed=frozenset({3}))
    short = replace(run.candidates[0], selection_answers=11)
    partial = replace(run, candidates=[short, *run.candidates[1:]])
    assert run_budget(run)["search"] == 19 * SELECTION
    assert run_budget(partial)["search"] == 18 * SELECTION + 11


def test_results_and_every_ensemble_name_their_budget(run):
    document = results_document(run)
    assert document["budget"] == run_budget(run)
    smallest = document["ensembles"][0]
    assert smallest["budget"] == {
        "search": 12 * SELECTION,
        "development": 0,
        "final": HELDOUT,
        "total": 12 * SELECTION + HELDOUT,
    }
    assert document["base"]["selection_accuracy"] == 8 / 40


def test_attempts_that_were_repeated_are_told_by_phase(run):
    candidates = list(run.candidates)
    candidates[0] = replace(candidates[0], attempts=3)
    candidates[1] = replace(candidates[1], heldout_attempts=2)
    assert repeated_attempts(replace(run, candidates=candidates)) == {"selection": 2, "heldout": 1}
    assert repeated_attempts(run) == {"selection": 0, "heldout": 0}


def timed(run, workers=("one",)):
    candidates = [
        replace(one, seconds=1.5, heldout_seconds=0.5, worker=workers[one.index % len(workers)])
        for one in run.candidates
    ]
    base = replace(run.base, seconds=2.5, heldout_seconds=1.5)
    return replace(run, candidates=candidates, base=base)


def test_time_is_split_as_in_the_paper(run):
    scope = timing_scope(timed(run), {**PHASES, STARTING: 0.5})
    assert scope["search"] == pytest.approx(2.0 + 48 * 1.5)
    assert scope["end_to_end"] == pytest.approx(1.0 + 0.5 + 2.0 + 80.0 + 20.0 - 4.0)
    assert scope["calibration"] == 5.0
    assert scope["device"] == {"search": 72.0, "final": 24.0, "base": 4.0}


def test_time_of_a_base_that_was_reused_is_not_deducted(run):
    found = timed(run)
    base = replace(found.base, reused=True)
    scope = timing_scope(replace(found, base=base), PHASES)
    assert scope["end_to_end"] == pytest.approx(103.0 - 1.5)
    base = replace(base, heldout_reused=True)
    scope = timing_scope(replace(found, base=base), PHASES)
    assert scope["end_to_end"] == pytest.approx(103.0)
    assert scope["device"] == {"search": 72.0, "final": 24.0, "base": 4.0}


def test_workers_of_reused_results_share_no_wall(run):
    found = timed(run, workers=("one", "two"))
    candidates = [replace(one, reused=one.worker == "two") for one in found.candidates]
    scope = timing_scope(replace(found, candidates=candidates), PHASES)
    assert scope["workers"] == 2
    assert scope["end_to_end"] == pytest.approx(103.0 - 4.0)


def test_workers_that_answered_held_out_rows_share_the_wall_too(run):
    found = timed(run)
    scored = [replace(one, reused=True) for one in found.candidates]
    base = replace(found.base, reused=True, heldout_worker="two")
    new_rows = replace(found, candidates=scored, base=base)
    assert timing_scope(new_rows, PHASES)["end_to_end"] == pytest.approx(103.0 - 1.5)
    voting = [replace(found.candidates[0], heldout_worker="two"), *found.candidates[1:]]
    several = replace(found, candidates=voting)
    assert timing_scope(several, PHASES)["end_to_end"] == pytest.approx(103.0)


def test_time_of_the_base_is_inside_where_several_workers_shared_the_wall(run):
    scope = timing_scope(timed(run, workers=("one", "two")), PHASES)
    assert scope["workers"] == 2
    assert scope["end_to_end"] == pytest.approx(103.0)
