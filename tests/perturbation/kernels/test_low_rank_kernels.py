"""Low-rank candidates by kernels against candidates by the plain version, byte for byte."""

import pytest
import torch

from modnorm.geometry.scale_map import Norm
from modnorm.noise import Block

pytest.importorskip("triton", reason="no Triton for this platform")

QKV = "model.layers.0.self_attn.qkv_proj.weight"
GATE_UP = "model.layers.0.mlp.gate_up_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
ODD = [
    ("odd", (5, 7), Norm.SPECTRAL, 2.0),
    ("wide", (3, 41), Norm.SPECTRAL, 3.0),
    ("tall", (41, 3), Norm.SPECTRAL, 3.0),
    ("row", (1, 9), Norm.SPECTRAL, 4.0),
    ("column", (9, 1), Norm.SPECTRAL, 4.0),
    ("embed", (11, 13), Norm.MAX_ROW, 2.0),
    ("plain", (9, 8), Norm.UNIT, 3.0),
    ("vector", (13,), Norm.MAX_ABS, None),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_and_coefficients_are_equal(low_rank, pair, dtype):
    fused, _, plain, _ = pair(low_rank, dtype=dtype)
    resolved = plain.apply(low_rank.descriptor(radius=2.0), low_rank.scale_map)
    found = fused.apply(low_rank.descriptor(radius=2.0), low_rank.scale_map)
    assert found.coefficients == pytest.approx(resolved.coefficients, rel=1e-6)
    fused.restore()
    assert fused.is_pristine()
    assert fused.apply(resolved, low_rank.scale_map) == resolved
    assert fused.sha256() == plain.sha256()


@pytest.mark.parametrize("rank", [1, 2, 33])
def test_odd_shapes(model_of, pair, rank):
    model = model_of("modular_norm", ODD, rank)
    fused, _, plain, _ = pair(model, dtype=torch.float32)
    resolved = fused.apply(model.descriptor(radius=2.0), model.scale_map)
    plain.apply(resolved, model.scale_map)
    assert fused.sha256() == plain.sha256()


@pytest.mark.parametrize(
    "blocks",
    [
        {
            QKV: [Block((24, 32)), Block((0, 16)), Block((16, 24))],
            GATE_UP: [Block((0, 24)), Block((24, 48))],
        },
        {
            QKV: [Block((8, 19)), Block((20, 25)), Block((28, 32))],
            GATE_UP: [Block((12, 24)), Block((36, 48))],
            DOWN: [Block((0, 16), (12, 24))],
        },
    ],
)
def test_views_and_shards(low_rank, pair, blocks):
    fused, views, plain, plain_views = pair(low_rank, blocks)
    resolved = fused.apply(low_rank.descriptor(radius=2.0), low_rank.scale_map)
    plain.apply(resolved, low_rank.scale_map)
    for name, parts in views.items():
        for ours, theirs in zip(parts, plain_views[name], strict=True):
            bits = ours.storage.cpu().view(torch.int16)
            assert torch.equal(bits, theirs.storage.view(torch.int16)), name
    fused.restore()
    assert fused.is_pristine()


def test_maps_of_both_kinds_alternate(low_rank, isotropic, pair):
    fused, _, plain, _ = pair(low_rank)
    for drawn in (isotropic, low_rank, isotropic):
        resolved = fused.apply(drawn.descriptor(), drawn.scale_map)
        plain.apply(resolved, drawn.scale_map)
        assert fused.sha256() == plain.sha256()
        fused.restore()
        plain.restore()
