import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modnorm.calibration.maps import FLOOR, FunctionalMap, operator_norm, start_vector


def exact(function: FunctionalMap, at: torch.Tensor) -> float:
    jacobian = torch.func.jacrev(function)(at).reshape(-1, at.numel())
    return float(torch.linalg.svdvals(jacobian)[0])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def gated(gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> FunctionalMap:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down

    return function


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(-1, -2), dim=-1) @ x


MAPS: dict[str, FunctionalMap] = {
    "rms_norm": rms_norm,
    "gated": gated(random(6, 9, seed=1), random(6, 9, seed=2), random(9, 6, seed=3)),
    "attention": attention,
    "residual": lambda x: x + attention(rms_norm(x)),
    "narrowing": lambda x: torch.tanh(x).mean(0) @ random(6, 2, seed=4),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_norm_of_a_diagonal_map_is_its_largest_entry(dtype):
    diagonal = torch.tensor([3.0, 2.0, 0.5], dtype=dtype)
    estimate = operator_norm(lambda x: diagonal * x, torch.ones(3, dtype=dtype), seed=1729)
    assert estimate == pytest.approx(3.0, rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_norm_may_be_larger_than_any_number_of_the_dtype(dtype):
    ones = torch.ones(100, dtype=dtype)
    estimate = operator_norm(lambda x: 3000 * x.sum() * ones, ones, seed=1)
    assert estimate == pytest.approx(3e5, rel=1e-2)


@pytest.mark.parametrize("name", MAPS)
def test_the_estimate_converges_to_the_exact_jacobian(name):
    at = random(4, 6, seed=11)
    estimate = operator_norm(MAPS[name], at, seed=5, iterations=400)
    assert estimate == pytest.approx(exact(MAPS[name], at), rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 6), columns=st.integers(1, 6))
def test_the_estimate_never_exceeds_the_largest_singular_value(seed, rows, columns):
    matrix = random(rows, columns, seed=seed)
    at = random(columns, seed=seed + 1)
    bound = torch.linalg.svdvals(matrix)[0].item()
    estimates = [
        operator_norm(lambda x: matrix @ x, at, seed=seed, iterations=steps) for steps in (1, 2, 4)
    ]
    assert all(estimate <= bound * (1 + 1e-9) for estimate in estimates)
    assert estimates[0] <= estimates[1] * (1 + 1e-9)
    assert estimates[1] <= estimates[2] * (1 + 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_constant_map_has_the_floor_as_its_norm(dtype):
    assert operator_norm(lambda x: x * 0, torch.ones(2, 3, dtype=dtype), seed=1) == FLOOR


def test_the_start_vector_is_the_seeded_gaussian_of_unit_length():
    at = torch.zeros(1, 7, 5, dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(1729)
    gaussian = torch.randn(1, 7, 5, generator=generator, dtype=torch.bfloat16)
    expected = gaussian / gaussian.float().norm().to(torch.bfloat16)
    assert torch.equal(start_vector(at, 1729), expected)
    assert not torch.equal(start_vector(at, 1730), expected)
