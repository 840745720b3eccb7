import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.geometry.norms import low_rank_norm, natural_norm, spectral
from modnorm.geometry.scale_map import Norm

shapes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def gaussian(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def literal_power_iteration(z, steps):
    """Compute the published routine in float64, with explicit loops."""
    rows, columns = z.shape
    v = [1 / math.sqrt(columns)] * columns
    for _ in range(steps):
        u = [sum(z[i, j] * v[j] for j in range(columns)) for i in range(rows)]
        length = max(math.sqrt(sum(x * x for x in u)), 1e-12)
        u = [x / length for x in u]
        v = [sum(z[i, j] * u[i] for i in range(rows)) for j in range(columns)]
        length = max(math.sqrt(sum(x * x for x in v)), 1e-12)
        v = [x / length for x in v]
    last = [sum(z[i, j] * v[j] for j in range(columns)) for i in range(rows)]
    return math.sqrt(sum(x * x for x in last))


@given(shape=shapes, seed=st.integers(0, 2**31), steps=st.integers(0, 8))
def test_spectral_norm_is_the_literal_power_iteration(shape, seed, steps):
    z = gaussian(shape, seed)
    expected = literal_power_iteration(z.double().numpy(), steps)
    rounding = 1e-5 * torch.linalg.vector_norm(z).item()
    assert spectral(z, steps).item() == pytest.approx(expected, rel=1e-5, abs=rounding)


@given(shape=shapes, seed=st.integers(0, 2**31))
def test_spectral_norm_never_exceeds_the_largest_singular_value(shape, seed):
    z = gaussian(shape, seed)
    exact = np.linalg.norm(z.double().numpy(), 2)
    assert natural_norm(z, Norm.SPECTRAL).item() <= exact * (1 + 1e-5)


@given(shape=shapes, seed=st.integers(0, 2**31))
def test_other_norms_are_their_definitions(shape, seed):
    z = gaussian(shape, seed)
    entries = z.double().numpy()
    row = max(math.sqrt(sum(x * x for x in line)) for line in entries)
    every = math.sqrt(sum(x * x for line in entries for x in line))
    assert natural_norm(z, Norm.MAX_ROW).item() == pytest.approx(row, rel=1e-5)
    assert natural_norm(z, Norm.FROBENIUS).item() == pytest.approx(every, rel=1e-5)
    assert natural_norm(z[0], Norm.MAX_ABS).item() == max(abs(x) for x in z[0].tolist())
    assert natural_norm(z, Norm.UNIT).item() == 1


@pytest.mark.parametrize("norm", [norm for norm in Norm if norm is not Norm.UNIT])
def test_the_norm_of_zeros_is_the_lower_bound(norm):
    assert natural_norm(torch.zeros(3, 4), norm).item() == pytest.approx(1e-12)


def test_a_frobenius_norm_of_many_entries_keeps_its_digits():
    z = gaussian((4096, 2048), 5)
    expected = torch.linalg.vector_norm(z.double()).item()
    assert natural_norm(z, Norm.FROBENIUS).item() == pytest.approx(expected, rel=1e-5)


ranks = st.integers(1, 12)
rows = st.lists(st.integers(1, 40), min_size=1, max_size=3)


def draw(rows, columns, rank, seed):
    """Return factors whose elements are multiples of 2^-13, as the noise has them."""
    generator = torch.Generator().manual_seed(seed)

    def factor(*shape):
        normal = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (normal * 2**13).round() / 2**13

    return [(factor(count, rank), factor(rank, columns)) for count in rows]


def product(factors):
    return torch.cat([left @ right for left, right in factors])


@given(rows=rows, columns=st.integers(1, 40), rank=ranks, seed=st.integers(0, 2**31))
def test_the_spectral_norm_is_that_of_a_float64_svd(rows, columns, rank, seed):
    factors = draw(rows, columns, rank, seed)
    expected = torch.linalg.svdvals(product(factors))[0].item()
    found = low_rank_norm(factors, Norm.SPECTRAL)
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(expected, rel=1e-6)


@given(rows=rows, columns=st.integers(1, 40), rank=ranks, seed=st.integers(0, 2**31))
def test_the_largest_row_is_that_of_the_product(rows, columns, rank, seed):
    factors = draw(rows, columns, rank, seed)
    expected = product(factors).square().sum(1).max().sqrt().item()
    assert low_rank_norm(factors, Norm.MAX_ROW).item() == pytest.approx(expected, rel=1e-6)


@given(rank=ranks)
def test_isotropic_noise_is_divided_by_its_standard_deviation(rank):
    assert low_rank_norm(draw([3], 5, rank, 1), Norm.UNIT).item() == math.sqrt(rank)
