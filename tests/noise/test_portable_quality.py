"""`portable-v1` is standard Gaussian noise. Bounds are 5 standard errors, seeds are fixed."""

from math import erfc, sqrt

import pytest
import torch

from modnorm.noise import get_scheme

CPU = torch.device("cpu")
SIDE = 2048
N = SIDE * SIDE


def draw(seed: int = 0, name: str = "model.layers.0.mlp.gate_up_proj.weight") -> torch.Tensor:
    scheme = get_scheme("portable-v1")
    noise = scheme.sample(seed, name, (SIDE, SIDE), dtype=torch.bfloat16, device=CPU)
    return noise.double()


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a * b).mean() / (a.square().mean() * b.square().mean()).sqrt())


@pytest.mark.parametrize("seed", [0, 1, 938776589])
def test_moments(seed):
    z = draw(seed)

    assert abs(float(z.mean())) < 5 / sqrt(N)
    assert abs(float(z.square().mean()) - 1) < 5 * sqrt(2 / N)
    assert abs(float(z.pow(3).mean())) < 5 * sqrt(15 / N)
    assert abs(float(z.pow(4).mean()) - 3) < 5 * sqrt(96 / N)


@pytest.mark.parametrize("sigma", [1, 2, 3, 3.5, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_tails(sigma, sign):
    probability = erfc(sigma / sqrt(2)) / 2

    count = int((draw() * sign > sigma).sum())

    assert abs(count - N * probability) < 5 * sqrt(N * probability * (1 - probability))


@pytest.mark.parametrize("seed", [0, 5])
def test_kolmogorov_smirnov_distance(seed):
    z = draw(seed).flatten().sort().values
    exact = torch.special.ndtr(z)
    rank = torch.arange(N + 1, dtype=torch.float64) / N

    distance = max(float((rank[1:] - exact).max()), float((exact - rank[:-1]).max()))

    # 1.95 / sqrt(n) is passed once in a thousand; the values are 2^-13 apart, which adds half
    # a step times the largest density.
    assert distance < 1.95 / sqrt(N) + 0.4 * 2**-14


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 8, 9, 16, SIDE - 1, SIDE, SIDE + 1, 8 * SIDE])
def test_positions_are_independent(lag):
    z = draw().flatten()
    magnitude = z.abs() - z.abs().mean()

    assert abs(correlation(z[lag:], z[:-lag])) < 5 / sqrt(N - lag)
    assert abs(correlation(magnitude[lag:], magnitude[:-lag])) < 5 / sqrt(N - lag)


@pytest.mark.parametrize(
    ("seed", "name"),
    [
        (1, "model.layers.0.mlp.gate_up_proj.weight"),
        (2**31 - 1, "model.layers.0.mlp.gate_up_proj.weight"),
        (2**32, "model.layers.0.mlp.gate_up_proj.weight"),
        (0, "model.layers.1.mlp.gate_up_proj.weight"),
        (0, "model.layers.0.mlp.down_proj.weight"),
        (0, "model.norm.weight"),
    ],
)
def test_seeds_and_tensors_are_independent(seed, name):
    z, other = draw().flatten(), draw(seed, name).flatten()
    magnitude, other_magnitude = z.abs() - z.abs().mean(), other.abs() - other.abs().mean()

    assert abs(correlation(z, other)) < 5 / sqrt(N)
    assert abs(correlation(magnitude, other_magnitude)) < 5 / sqrt(N)
    assert abs(correlation(z[1:], other[:-1])) < 5 / sqrt(N - 1)
