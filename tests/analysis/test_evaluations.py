from dataclasses import replace

import pytest

from modnorm.analysis.document import results_document
from modnorm.analysis.statistics import ensemble_cost, repeated_attempts, run_budget, timing_scope
from modnorm.search.budgets import ensemble_budget

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
    stopped = replace(run.candidates[0], selection_answers=11)
    partial = replace(run, candidates=[stopped, *run.candidates[1:]])
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
    base = replace(run.base, seconds=3.0, heldout_seconds=1.0)
    return replace(run, candidates=candidates, base=base)


def test_time_is_split_as_in_the_paper(run):
    scope = timing_scope(timed(run), PHASES)
    assert scope["search"] == pytest.approx(2.0 + 48 * 1.5)
    assert scope["end_to_end"] == pytest.approx(1.0 + 2.0 + 80.0 + 20.0 - 4.0)
    assert scope["calibration"] == 5.0
    assert scope["device"] == {"search": 72.0, "final": 24.0, "base": 4.0}


def test_time_of_the_base_is_inside_where_several_workers_shared_the_wall(run):
    scope = timing_scope(timed(run, workers=("one", "two")), PHASES)
    assert scope["workers"] == 2
    assert scope["end_to_end"] == pytest.approx(103.0)
