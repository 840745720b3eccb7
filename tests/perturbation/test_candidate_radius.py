"""Each tensor of a real model's candidate moves by R in its scaled natural norm."""

import pytest
import torch

from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.geometry.scale_map import Norm
from modnorm.noise import Block, get_scheme
from modnorm.perturbation.candidate_weights import CandidateWeights
from modnorm.perturbation.descriptor import Descriptor
from modnorm.perturbation.held_tensor import WeightView
from modnorm.perturbation.methods import build_scale_map

RADIUS = 0.16
LAYERS = 8
NOISE = "portable-v1"
SENSITIVITIES = [
    {"attention_module": 0.3 + 1.1 * layer, "mlp_module": 7.0 - 0.9 * layer}
    for layer in range(LAYERS)
]
"""Different in every layer and module, on both sides of the upper clip of 4."""


def unit(vector):
    return vector / vector.square().sum().sqrt()


def literal_norm(delta, norm):
    """Compute a norm of the paper's table in float64, from its definition."""
    z = delta.double()
    if norm is Norm.MAX_ROW:
        return max(float(row.square().sum().sqrt()) for row in z)
    if norm is Norm.MAX_ABS:
        return max(abs(value) for value in z.tolist())
    if norm is Norm.FROBENIUS:
        return float(z.square().sum().sqrt())
    assert norm is Norm.SPECTRAL
    right = unit(torch.ones(z.shape[1], dtype=torch.float64))
    for _ in range(8):
        right = unit(z.T @ unit(z @ right))
    return float((z @ right).square().sum().sqrt())


@pytest.fixture(scope="module")
def stored(checkpoint):
    return CheckpointWeights(checkpoint)


@pytest.fixture(scope="module")
def held(stored, checkpoint):
    """Return the model's weights in the fused layout."""
    views = {
        tensor.name: [WeightView(stored.read(tensor), Block.whole(tensor.shape))]
        for tensor in stored.layout
    }
    return CandidateWeights(stored.layout, views, model_digest=checkpoint.digest)


@pytest.fixture(scope="module", params=["modular_norm", "rmsnorm_only", "frobenius"])
def scale_map(request, checkpoint, stored):
    return build_scale_map(request.param, checkpoint, sensitivities=SENSITIVITIES)


def test_the_maps_differ(scale_map):
    norms = {row.norm for row in scale_map.active}
    scales = {row.scale for row in scale_map.active}
    if scale_map.method == "frobenius":
        assert (norms, scales) == ({Norm.FROBENIUS}, {1.0})
    else:
        every = {Norm.MAX_ROW, Norm.SPECTRAL, Norm.MAX_ABS}
        assert norms == (every if scale_map.method == "modular_norm" else {Norm.MAX_ABS})
        assert len(scales) > LAYERS


@pytest.mark.parametrize("seed", [0, 41, 2**31 - 1])
def test_every_delta_has_the_radius_in_its_scaled_norm(held, scale_map, seed):
    descriptor = Descriptor(NOISE, seed, scale_map.method, RADIUS, scale_map.digest)
    resolved = held.apply(descriptor, scale_map)
    held.restore()

    for row, coefficient in zip(scale_map.active, resolved.coefficients, strict=True):
        noise = get_scheme(NOISE).sample(
            seed, row.name, row.shape, dtype=torch.bfloat16, device=torch.device("cpu")
        )
        reached = row.scale * literal_norm(coefficient * noise, row.norm)
        assert reached == pytest.approx(RADIUS, rel=1e-4), row.name
