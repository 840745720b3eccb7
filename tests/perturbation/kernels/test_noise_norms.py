"""Norms by kernels agree with norms by torch, which sums in another order."""

from dataclasses import replace

import pytest
import torch

from modnorm.geometry.norms import natural_norm
from modnorm.geometry.scale_map import Norm
from modnorm.noise import get_scheme
from modnorm.noise.portable import magnitudes, stream_key

pytest.importorskip("triton", reason="no Triton for this platform")

from modnorm.perturbation.kernels.noise_norms import NoiseNorms, supported

ROWS = [
    ("down", (16, 40), Norm.SPECTRAL, 1.0),
    ("gate_up", (48, 16), Norm.SPECTRAL, 1.0),
    ("square", (24, 24), Norm.SPECTRAL, 1.0),
    ("odd", (37, 13), Norm.SPECTRAL, 1.0),
    ("odd_wide", (5, 43), Norm.SPECTRAL, 1.0),
    ("one_row", (1, 33), Norm.SPECTRAL, 1.0),
    ("one_column", (33, 1), Norm.SPECTRAL, 1.0),
    ("embed", (37, 24), Norm.MAX_ROW, 1.0),
    ("odd_embed", (37, 21), Norm.MAX_ROW, 1.0),
    ("bias", (40,), Norm.MAX_ABS, 1.0),
    ("odd_bias", (1,), Norm.MAX_ABS, 1.0),
    ("scalar", (), Norm.MAX_ABS, 1.0),
    ("other", (9, 17), Norm.FROBENIUS, 1.0),
    ("cube", (2, 3, 8), Norm.FROBENIUS, 1.0),
    ("isotropic", (9, 9), Norm.UNIT, 1.0),
]


@pytest.fixture(scope="module")
def scales(model_of):
    return model_of("modular_norm", ROWS).scale_map.active


@pytest.fixture(scope="module")
def norms(scales, device, small):
    return compute(scales, device, small)


def compute(scales, device, sizes, seed=5):
    table = torch.tensor(magnitudes(), dtype=torch.int32).to(torch.int16).to(device)
    keys = [stream_key("portable-v1", seed, scale.name) for scale in scales]
    return NoiseNorms(scales, device, table, sizes).compute(torch.tensor(keys, device=device))


def test_norms_are_those_of_the_noise(scales, norms):
    for scale, norm in zip(scales, norms.tolist(), strict=True):
        z = get_scheme("portable-v1").sample(
            5, scale.name, scale.shape, dtype=torch.float32, device=torch.device("cpu")
        )
        expected = natural_norm(z.double(), scale.norm).item()
        exact = scale.norm in {Norm.MAX_ABS, Norm.UNIT}
        assert norm == pytest.approx(expected, rel=0 if exact else 1e-6), scale.name


def test_no_launch_size_changes_a_norm(scales, device, small, norms):
    others = replace(small, shared_table=False, scratch_bytes=2**20, write_blocks=256)
    assert torch.equal(compute(scales, device, others), norms)


@pytest.mark.parametrize(
    ("shape", "norm", "taken"),
    [
        ((2**14, 2**15), Norm.SPECTRAL, True),
        ((2**14 + 1, 2**15), Norm.SPECTRAL, False),
        ((3, 4, 5), Norm.SPECTRAL, False),
        ((3, 4, 5), Norm.MAX_ROW, False),
        ((3, 4, 5), Norm.FROBENIUS, True),
        ((), Norm.MAX_ABS, True),
    ],
)
def test_supported_norms(model_of, shape, norm, taken):
    (scale,) = model_of("modular_norm", [("one", shape, norm, 1.0)]).scale_map.active

    assert supported(scale) is taken
