"""The paper's numbers (app. "Evaluation-Budget Accounting") from the paper's settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.errors import InvalidInputError
from modnorm.search.budgets import (
    Budget,
    ensemble_budget,
    evaluation_reduction,
    evolution_budget,
    learning_rate_sweep,
    matched_population,
    total_budget,
    two_point_budget,
)

COUNTDOWN, GSM8K = 1500, 1319


def test_iterative_es_costs_as_in_the_paper():
    assert evolution_budget(COUNTDOWN).total == 601_500
    assert evolution_budget(GSM8K).total == 601_319
    assert evolution_budget(COUNTDOWN) == Budget(search=600_000, final=1500)


def test_two_point_methods_cost_as_in_the_paper():
    assert two_point_budget(COUNTDOWN).total == 609_500
    assert two_point_budget(GSM8K).total == 609_319
    assert two_point_budget(GSM8K) == Budget(search=600_000, development=8_000, final=1319)


def test_the_last_model_is_a_checkpoint_too():
    assert two_point_budget(1, updates=150).development == 3 * 500
    assert two_point_budget(1, updates=200).development == 3 * 500


def test_ensembles_cost_as_in_the_paper():
    assert ensemble_budget(100, 25, COUNTDOWN).total == 57_500
    assert ensemble_budget(100, 25, GSM8K).total == 52_975
    assert ensemble_budget(2820, 25, COUNTDOWN).total == 601_500
    assert ensemble_budget(2841, 25, GSM8K).total == 601_175


def test_a_learning_rate_sweep_costs_as_in_the_paper():
    assert learning_rate_sweep() == Budget(search=600_000, development=9_000)


def test_populations_are_matched_as_in_the_paper():
    assert matched_population(evolution_budget(COUNTDOWN), 25, COUNTDOWN) == 2820
    assert matched_population(evolution_budget(GSM8K), 25, GSM8K) == 2841
    with pytest.raises(InvalidInputError, match="25 experts on 1500 rows leave nothing"):
        matched_population(Budget(search=200), 25, COUNTDOWN)


@pytest.mark.parametrize(
    ("heldout", "budget", "printed"),
    [
        (COUNTDOWN, ensemble_budget(100, 25, COUNTDOWN), "10.46"),
        (GSM8K, ensemble_budget(100, 25, GSM8K), "11.35"),
        (COUNTDOWN, two_point_budget(COUNTDOWN), "0.99"),
        (GSM8K, two_point_budget(GSM8K), "0.99"),
        (COUNTDOWN, ensemble_budget(2820, 25, COUNTDOWN), "1.00"),
        (GSM8K, ensemble_budget(2841, 25, GSM8K), "1.00"),
        (COUNTDOWN, ensemble_budget(3000, 1, COUNTDOWN), "1.00"),
    ],
)
def test_reductions_are_those_of_the_paper(heldout, budget, printed):
    assert f"{evaluation_reduction(evolution_budget(heldout), budget):.2f}" == printed


def test_reductions_against_two_point_methods_are_those_of_the_paper():
    for heldout, printed in ((COUNTDOWN, "10.6"), (GSM8K, "11.5")):
        reduction = evaluation_reduction(
            two_point_budget(heldout), ensemble_budget(100, 25, heldout)
        )
        assert f"{reduction:.1f}" == printed


@given(st.integers(1, 50), st.integers(1, 2000), st.integers(1, 400))
def test_a_matched_population_is_the_largest_that_costs_no_more(size, rows, selection):
    reference = Budget(search=10_000_000)
    population = matched_population(reference, size, rows, selection_rows=selection)
    costs = [
        ensemble_budget(population + more, size, rows, selection_rows=selection).total
        for more in (0, 1)
    ]
    assert costs[0] <= reference.total < costs[1]


def test_budgets_add_up_by_purpose():
    assert total_budget([]) == Budget()
    assert total_budget([Budget(1, 2, 3), Budget(10, 20, 30)]) == Budget(11, 22, 33)
    assert Budget(1, 2, 3).as_dict() == {"search": 1, "development": 2, "final": 3, "total": 6}
