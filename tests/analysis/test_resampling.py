"""Bootstrap intervals over seeds and rows."""

import numpy as np
import pytest

from modnorm.analysis.seeds import Votes, grid_interval, mean_bounds, term_intervals
from modnorm.analysis.uncertainty import accuracy_interval, mean_interval


def _right(rows, right):
    return np.array([1.0] * right + [0.0] * (rows - right))


def test_one_seed_has_about_the_wilson_interval_of_its_rows():
    found = grid_interval(_right(400, 300)[None])
    wilson = accuracy_interval(0.75, 400)
    assert found == pytest.approx(wilson, abs=0.01)


def test_one_seed_has_the_interval_that_a_comparison_of_two_runs_prints():
    gaps = np.repeat([1.0, 0.0, -1.0], (7, 80, 13))
    assert grid_interval(gaps[None]) == mean_interval(gaps.tolist())


def test_seeds_that_agree_still_have_an_interval():
    rows = np.stack([_right(40, 14), _right(40, 14)[::-1]])
    found = grid_interval(rows)
    assert found is not None
    lower, upper = found
    assert lower < 0.3
    assert upper > 0.4
    assert mean_interval([0.35, 0.35]) == (0.35, 0.35)


@pytest.mark.parametrize(
    "rows", [[_right(10, 5), None], [_right(10, 5), _right(8, 4)], [_right(10, 4), _right(10, 5)]]
)
def test_rows_that_do_not_fit_leave_the_bootstrap_over_seeds(rows):
    assert mean_bounds([0.5, 0.5], rows) == mean_interval([0.5, 0.5])


def test_a_single_value_has_no_interval():
    assert grid_interval(np.ones((1, 1))) is None
    assert mean_bounds([0.5], [None]) is None


def test_terms_are_bounded_around_the_terms_themselves():
    generator = np.random.default_rng(0)

    def votes(skill):
        experts = generator.binomial(5, skill, 300)
        return Votes(experts.astype(float), (experts >= 3).astype(float))

    pairs = [(votes(0.7), votes(0.5)) for _ in range(3)]
    bounds = term_intervals(pairs)
    gaps = [one.correct.mean() - other.correct.mean() for one, other in pairs]
    assert bounds["total"].lower < np.mean(gaps) < bounds["total"].upper
    assert bounds["support"] == pytest.approx(bounds["total"], abs=1e-9)  # q(m) is equal in both
    assert bounds["voting"] == pytest.approx((0, 0), abs=1e-9)
