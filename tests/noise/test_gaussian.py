from math import erf, exp, pi, sqrt
from statistics import NormalDist

import pytest
import torch

from modnorm.errors import IncompatibleError
from modnorm.noise.portable import STEP, gaussian_table, magnitudes


def test_magnitudes_are_the_nearest_multiples_of_the_quantiles():
    """Compare with erf, which shares no code with the inverse in the table."""
    for index, magnitude in enumerate(magnitudes()):
        value = magnitude * STEP
        mass = 0.5 * (1 + erf(value / sqrt(2)))
        density = exp(-value * value / 2) / sqrt(2 * pi)
        half_step = density * STEP / 2 * exp(value * STEP)
        assert abs(mass - (0.5 + (index + 0.5) / 65536)) <= half_step + 1e-15


def test_exact_moments_of_the_table():
    table = gaussian_table(torch.device("cpu")).double()

    assert float(table.sum()) == 0
    assert float(table.square().mean()) == pytest.approx(1, abs=3e-5)
    assert float(table.pow(4).mean()) == pytest.approx(3, abs=2e-3)
    assert float(table.max()) == 35430 * STEP


def test_a_deviating_library_is_an_error(monkeypatch):
    quantile = NormalDist.inv_cdf
    monkeypatch.setattr(NormalDist, "inv_cdf", lambda self, p: quantile(self, p) * (1 + 1e-7))

    with pytest.raises(IncompatibleError, match="quantile table"):
        magnitudes.__wrapped__()
