"""Norms of products from r x r matrices against the product itself, in float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modnorm.geometry.norms import low_rank_norm
from modnorm.geometry.scale_map import Norm

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
