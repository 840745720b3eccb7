from collections import Counter

import pytest

from modnorm.checkpoint.families import physical_layout
from modnorm.geometry.scales import (
    group_share_scales,
    masked_scales,
    modular_scales,
    rmsnorm_doubled_scales,
    uncorrected_scales,
)
from modnorm.geometry.tensor_roles import base_scales, classify, tensor_masses
from modnorm.spec import Masses
from tests.faults import error_at

QWEN_15B = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}
SENSITIVITIES = [{"attention_module": 2.0, "mlp_module": 0.5}] * 5


def scale_of(row):
    assert row.scale is not None
    return row.scale


@pytest.fixture
def qwen():
    return physical_layout(QWEN_15B)


@pytest.fixture
def full(make_model):
    model = make_model()
    return modular_scales(
        model.layout, masses=Masses(), read=model.read, sensitivities=SENSITIVITIES
    )


def test_without_sensitivities_every_scale_is_the_base_scale(qwen):
    masses = tensor_masses(classify(qwen), Masses())
    rows = uncorrected_scales(qwen, Masses())
    assert [row.mass for row in rows] == list(masses)
    assert [row.scale for row in rows] == [row.base_scale for row in rows]
    assert [row.scale for row in rows] == list(base_scales(masses))
    assert {row.correction for row in rows} == {1.0}


def test_the_norm_correction_doubles_two_norms_a_layer(qwen):
    base = uncorrected_scales(qwen, Masses())
    found: Counter[tuple[float, str]] = Counter()
    for row, before in zip(rmsnorm_doubled_scales(qwen, Masses()), base, strict=True):
        found[scale_of(row) / scale_of(before), row.name.split(".")[-2]] += 1
        assert scale_of(row) == scale_of(before) * row.correction
    doubled = {name for factor, name in found if factor == 2}
    assert doubled == {"input_layernorm", "post_attention_layernorm"}
    assert sum(count for (factor, _), count in found.items() if factor == 2) == 56
    assert {factor for factor, _ in found} == {1.0, 2.0}


def test_equal_shares_of_published_groups_are_the_published_scales(qwen):
    rows = group_share_scales(qwen, Masses(), published=True)
    scales = Counter((round(scale_of(row), 6), row.correction) for row in rows)
    assert scales == {(2.1, 1.0): 1, (470.4, 1.0): 112, (235.2, 1.0): 56, (609.0, 1.0): 29}


def test_equal_shares_of_groups(qwen):
    rows = group_share_scales(qwen, Masses(), published=False)
    scales = Counter((row.group, round(scale_of(row), 6)) for row in rows)
    assert scales == {
        ("embedding", 2.1): 1,
        ("attention", 2.1 / 0.5 * 84): 84,
        ("mlp", 235.2): 56,
        ("norm", 1197.0): 57,
    }
    assert sum(row.mass for row in rows) == pytest.approx(2.1)


def test_a_group_without_mass_is_not_perturbed(qwen):
    for build in (
        uncorrected_scales,
        rmsnorm_doubled_scales,
        lambda layout, masses: group_share_scales(layout, masses, published=False),
    ):
        rows = build(qwen, Masses(norm=0))
        assert {row.group for row in rows if row.scale is None} == {"norm"}


@pytest.mark.parametrize(
    ("group", "published", "kept"),
    [
        ("attention", False, {"qkv", "attention_output"}),
        ("attention", True, {"qkv", "attention_output", "post_attention_norm"}),
        ("mlp", False, {"gate_up", "down"}),
    ],
)
def test_masks_keep_the_full_scales_of_a_group(full, group, published, kept):
    masked = masked_scales(full, group, published=published)
    assert {row.role for row in masked if row.scale is not None} == kept
    for row, before in zip(masked, full, strict=True):
        if row.scale is not None:
            assert row == before
        else:
            assert (row.base_scale, row.correction) == (None, 1.0)
            assert (row.name, row.mass, row.norm) == (before.name, before.mass, before.norm)


@pytest.mark.parametrize("family", ["olmo2", "qwen3"])
def test_published_controls_are_refused_for_other_layers(family):
    other = physical_layout({**QWEN_15B, "model_type": family})
    for control in (
        lambda: rmsnorm_doubled_scales(other, Masses()),
        lambda: group_share_scales(other, Masses(), published=True),
        lambda: masked_scales(uncorrected_scales(other, Masses()), "attention", published=True),
    ):
        with error_at("method.name", "is defined only for"):
            control()
    assert group_share_scales(other, Masses(), published=False)
    assert masked_scales(uncorrected_scales(other, Masses()), "attention")
