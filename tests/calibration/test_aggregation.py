import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.calibration.calibrate import aggregate

norms = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30)


def test_one_estimate_is_its_own_quantile():
    result = aggregate([3.0], 0.9)
    assert result["value"] == pytest.approx(3.0, rel=1e-6)
    assert result["summary"] == {"count": 1, "min": 3.0, "median": 3.0, "max": 3.0}


def test_the_quantile_is_linear_in_logs():
    result = aggregate([1.0, 100.0], 0.75)
    assert result["value"] == pytest.approx(10**1.5, rel=1e-6)


def test_the_median_of_an_even_count_is_the_lower_middle():
    summary = aggregate([4.0, 1.0, 3.0, 2.0], 0.9)["summary"]
    assert summary == {"count": 4, "min": 1.0, "median": 2.0, "max": 4.0}


def test_estimates_are_floored():
    assert aggregate([0.0], 0.9)["value"] == pytest.approx(1e-12, rel=1e-5)


@given(estimates=norms, quantile=st.floats(0, 1))
def test_the_value_is_the_quantile_of_the_logs(estimates, quantile):
    expected = math.exp(np.quantile(np.log(estimates), quantile, method="linear"))
    assert aggregate(estimates, quantile)["value"] == pytest.approx(expected, rel=1e-4)
