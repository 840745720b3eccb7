import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modnorm.calibration.calibrate import aggregate

norms = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30)


def test_estimates_are_floored():
    assert aggregate([0.0], 0.9)["value"] == pytest.approx(1e-12, rel=1e-5)


@given(estimates=norms, quantile=st.floats(0, 1))
def test_the_value_is_the_quantile_of_the_logs(estimates, quantile):
    expected = math.exp(np.quantile(np.log(estimates), quantile, method="linear"))
    assert aggregate(estimates, quantile)["value"] == pytest.approx(expected, rel=1e-4)
