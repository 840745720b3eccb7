import math

import numpy as np
import pandas as pd
import pytest

from modnorm.analysis.seeds import grid_interval, mean_bounds, term_intervals
from modnorm.analysis.uncertainty import accuracy_interval, holm, mcnemar, mean_interval


def _wilson(correct, rows, z=1.959963984540054):
    centre = (correct + z * z / 2) / (rows + z * z)
    spread = z / (rows + z * z) * math.sqrt(correct * (rows - correct) / rows + z * z / 4)
    return centre - spread, centre + spread


@pytest.mark.parametrize(("correct", "rows"), [(72, 100), (0, 60), (60, 60), (989, 1319)])
def test_the_interval_of_an_accuracy_is_wilsons(correct, rows):
    found = accuracy_interval(correct / rows, rows)
    assert found == pytest.approx(_wilson(correct, rows), abs=1e-12)


@pytest.mark.parametrize(("accuracy", "rows"), [(None, 60), (0.5, 0), (0.517, 60)])
def test_what_is_no_fraction_of_the_rows_has_no_interval(accuracy, rows):
    assert accuracy_interval(accuracy, rows) is None


def test_the_interval_of_a_mean_is_a_bootstrap_and_repeats():
    values = [1.0] * 40 + [0.0] * 60
    found = mean_interval(values)
    assert found is not None
    lower, upper = found
    assert lower == pytest.approx(0.4 - 1.96 * math.sqrt(0.24 / 100), abs=0.02)
    assert upper == pytest.approx(0.4 + 1.96 * math.sqrt(0.24 / 100), abs=0.02)
    assert mean_interval(values) == found
    assert mean_interval([0.7, 0.7]) == pytest.approx((0.7, 0.7))
    assert mean_interval([0.7]) is None


@pytest.mark.parametrize(("only_first", "only_second"), [(17, 8), (8, 17), (0, 6), (1, 1), (0, 0)])
def test_mcnemar_is_exact(only_first, only_second):
    discordant, least = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(discordant, k) for k in range(least + 1)) / 2**discordant
    assert mcnemar(only_first, only_second) == pytest.approx(min(1, 2 * tail))


def test_several_p_values_are_adjusted_step_by_step():
    # Holm (1979): the smallest of three times 3, the next times 2, never below the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def _right(rows, right):
    return np.array([1.0] * right + [0.0] * (rows - right))


@pytest.mark.parametrize("seeds", [1, 3])
def test_seeds_with_equal_rows_have_about_the_wilson_interval_of_these_rows(seeds):
    found = grid_interval(np.stack([_right(400, 300)] * seeds))
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
        return experts.astype(float), (experts >= 3).astype(float)

    names = ["experts", "correct", "reference_experts", "reference_correct"]
    pairs = pd.DataFrame([(*votes(0.7), *votes(0.5)) for _ in range(3)], columns=names)
    gaps = [right.mean() - other.mean() for right, other in pairs[names[1::2]].to_numpy()]
    bounds = term_intervals(pairs)
    assert bounds["total"].lower < 100 * np.mean(gaps) < bounds["total"].upper
    assert bounds["support"] == pytest.approx(bounds["total"], abs=1e-7)  # q(m) is equal in both
    assert bounds["voting"] == pytest.approx((0, 0), abs=1e-9)
    same = pairs.assign(reference_experts=pairs["experts"], reference_correct=0 * pairs["correct"])
    bounds = term_intervals(same)
    assert bounds["support"] == (0, 0)
    assert bounds["voting"] == bounds["total"]
    assert bounds["total"].lower > 0
    assert term_intervals(pairs.assign(experts=pairs["experts"].str[:7])) == {}
