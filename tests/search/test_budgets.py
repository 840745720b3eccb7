"""The paper's numbers (app. "Evaluation-Budget Accounting") from the paper's settings."""

from functools import partial

from modnorm.search.budgets import Budget, ensemble_budget, iterative_budget

COUNTDOWN, GSM8K = 1500, 1319
PAPER = partial(iterative_budget, selection_rows=200, development_interval=100)
evolution_budget = partial(PAPER, updates=100, candidates=30, development_rows=0)
two_point_budget = partial(PAPER, updates=1500, candidates=2, development_rows=500)


def test_iterative_es_costs_as_in_the_paper():
    assert evolution_budget(COUNTDOWN).total == 601_500
    assert evolution_budget(GSM8K).total == 601_319
    assert evolution_budget(COUNTDOWN) == Budget(search=600_000, final=1500)


def test_two_point_methods_cost_as_in_the_paper():
    assert two_point_budget(COUNTDOWN).total == 609_500
    assert two_point_budget(GSM8K).total == 609_319
    assert two_point_budget(GSM8K) == Budget(search=600_000, development=8_000, final=1319)


def test_the_last_checkpoint_may_follow_fewer_updates():
    found = PAPER(COUNTDOWN, updates=150, candidates=2, development_rows=500)
    assert found.development == 3 * 500


def test_ensembles_cost_as_in_the_paper():
    assert ensemble_budget(100, 25, COUNTDOWN).total == 57_500
    assert ensemble_budget(100, 25, GSM8K).total == 52_975
    assert ensemble_budget(2820, 25, COUNTDOWN).total == 601_500
    assert ensemble_budget(2841, 25, GSM8K).total == 601_175


def test_reductions_are_those_of_the_paper():
    for heldout, reduction in ((COUNTDOWN, 10.46), (GSM8K, 11.35)):
        costs = evolution_budget(heldout).total, ensemble_budget(100, 25, heldout).total
        assert round(costs[0] / costs[1], 2) == reduction
        assert round(costs[0] / two_point_budget(heldout).total, 2) == 0.99
