import math

import pytest

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


def test_a_metric_that_is_not_the_share_of_the_right_rows_has_no_interval():
    constant = accuracy_interval(0.1, 500, 7)  # one class of ten, which 7 rows have
    assert constant is None
    assert accuracy_interval(0.1, 500, 50) == accuracy_interval(0.1, 500)


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


@pytest.mark.parametrize(("only_first", "only_second"), [(17, 8), (8, 17), (0, 6), (1, 1)])
def test_mcnemar_is_exact(only_first, only_second):
    discordant, least = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(discordant, k) for k in range(least + 1)) / 2**discordant
    assert mcnemar(only_first, only_second) == pytest.approx(min(1, 2 * tail))


def test_runs_that_never_differ_are_not_told_apart():
    assert mcnemar(0, 0) == 1.0


def test_several_p_values_are_adjusted_step_by_step():
    # Holm (1979): the smallest of three times 3, the next times 2, never below the one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []
