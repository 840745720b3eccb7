from contextlib import nullcontext

import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from modnorm.geometry.scales import clip, linear_gain
from modnorm.perturbation.methods import (
    METHODS,
    build_scale_map,
    check_rank,
    method_names,
    needs_profile,
    refuse_unused_fields,
    require_usable,
)
from modnorm.spec import Masses, MethodSpec
from tests.faults import error_at

PROFILE = [{"attention_module": 2.0, "mlp_module": 0.5}] * 8


def build(method, sensitivities=None, **options):
    checkpoint = resolve_checkpoint("tiny-thicket")
    return build_scale_map(method, checkpoint, sensitivities=sensitivities, **options)


CALIBRATED = (
    "attention_only",
    "attention_only_published",
    "mlp_only",
    "modular_norm",
    "rmsnorm_only",
)


def test_the_methods_of_the_paper_are_registered():
    assert method_names() == (
        "attention_only",
        "attention_only_published",
        "base",
        "es",
        "frobenius",
        "mezo",
        "mlp_only",
        "modular_norm",
        "no_recursive_scaling",
        "no_recursive_scaling_natural_norm",
        "no_recursive_scaling_published",
        "no_sensitivity",
        "randopt",
        "rmsnorm_only",
        "rmsnorm_scale_correction",
        "zo_finetuner",
    )
    assert tuple(name for name in method_names() if needs_profile(name)) == CALIBRATED


def test_masked_controls_keep_the_scales_of_the_full_method():
    full = {row.name: row for row in build("modular_norm", PROFILE).active}
    for method, tensors in (("attention_only", 24), ("attention_only_published", 32)):
        masked = build(method, PROFILE).active
        assert len(masked) == tensors
        assert all(row == full[row.name] for row in masked)
    assert len(build("mlp_only", PROFILE).active) == 16


def test_rmsnorm_only_shares_the_mass_among_the_norms():
    scale_map = build("rmsnorm_only", PROFILE)
    assert len(scale_map.active) == 17
    assert {row.group for row in scale_map.active} == {"norm"}
    for row in scale_map.active:
        assert row.mass == pytest.approx(0.1 / 17)
        assert row.base_scale == pytest.approx(17)
        assert row.scale == pytest.approx(17 * row.correction)


def test_rmsnorm_only_corrects_by_the_bonds_alone():
    """Without the mass of q, o, g and d, r_input is phi_A and r_post is phi_F."""
    weights = CheckpointWeights(resolve_checkpoint("tiny-thicket"))
    gain = {
        tensor.name: clip(linear_gain(weights.read(tensor).double()), 0.25, 4)
        for tensor in weights.layout
        if "layers" in tensor.name and len(tensor.shape) == 2
    }
    rows = {row.name: row for row in build("rmsnorm_only", PROFILE).active}
    for layer in range(8):
        prefix = f"model.layers.{layer}"
        q, o = (gain[f"{prefix}.self_attn.{name}_proj.weight"] for name in ("qkv", "o"))
        g, d = (gain[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate_up", "down"))
        attention, mlp = clip(2.0 / (q * o), 0.25, 4), clip(0.5 / (g * d), 0.25, 4)
        middle = (attention + mlp) / 2
        for norm, bond in (("input", attention), ("post_attention", mlp)):
            correction = rows[f"{prefix}.{norm}_layernorm.weight"].correction
            assert correction == pytest.approx(clip(bond / middle, 0.5, 2))
    assert rows["model.norm.weight"].correction == 1


@pytest.mark.parametrize("method", CALIBRATED)
def test_calibrated_methods_need_a_profile(method):
    with error_at("method.profile"):
        build(method)


@pytest.mark.parametrize(
    ("method", "changes", "masses", "field"),
    [
        ("modular_norm", {}, {"embedding": 0, "attention": 0, "mlp": 0, "norm": 0}, "masses"),
        ("attention_only", {}, {"attention": 0}, "masses"),
        ("mlp_only", {}, {"mlp": 0}, "masses"),
        ("rmsnorm_only", {}, {"norm": 0}, "masses.norm"),
        ("attention_only_published", {"model_type": "olmo3"}, {}, "name"),
    ],
)
def test_an_unusable_method_is_refused_before_there_is_a_profile(method, changes, masses, field):
    config = {**resolve_checkpoint("tiny-thicket").config, **changes}
    with error_at(f"method.{field}"):
        require_usable(MethodSpec(name=method, radius=0.1, masses=Masses(**masses)), config)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_masses_change_the_scales_or_are_refused(method):
    masses = Masses(norm=0.3)
    changes = build(method, PROFILE, masses=masses) != build(method, PROFILE)
    spec = MethodSpec(name=method, radius=0.1 * (method != "base"), masses=masses)
    with nullcontext() if changes else error_at("method.masses"):
        refuse_unused_fields(spec)


@pytest.mark.parametrize("method", ["modular_norm", "randopt"])
def test_low_rank_noise_leaves_vectors_alone(method):
    full = build(method, PROFILE)
    low = build(method, PROFILE, rank=16)
    assert low.rank == 16
    assert low.digest != full.digest
    for row, before in zip(low.tensors, full.tensors, strict=True):
        assert row.scale == (before.scale if len(row.shape) == 2 else None), row.name
        assert (row.norm, row.mass) == (before.norm, before.mass)


@pytest.mark.parametrize("method", ["modular_norm", "randopt"])
def test_all_linear_leaves_embeddings_and_head_alone(method):
    low = build(method, PROFILE, rank=16)
    linear = build(method, PROFILE, rank=16, target_modules="all-linear")
    assert linear.digest != low.digest
    assert {row.group for row in linear.active} == {"attention", "mlp"}
    for row, before in zip(linear.tensors, low.tensors, strict=True):
        left_alone = row.group in {"embedding", "head"}
        assert row.scale == (None if left_alone else before.scale), row.name
        assert (row.norm, row.mass) == (before.norm, before.mass)
    assert build(method, PROFILE, rank=16, target_modules="all") == low


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"modular_norm", "randopt"}))
def test_other_methods_have_no_rank(method):
    for refused in (
        lambda: build(method, PROFILE, rank=4),
        lambda: require_usable(
            MethodSpec(name=method, radius=0.1 * (method != "base"), rank=4),
            resolve_checkpoint("tiny-thicket").config,
        ),
    ):
        with error_at("method.rank", "no low-rank noise") as caught:
            refused()
        assert "modular_norm or randopt" in (caught.value.remedy or "")


def test_published_noise_has_no_rank():
    method = MethodSpec(name="randopt", radius=0.1, rank=4)
    check_rank(method, "portable-v1")
    with error_at("method.rank", "randopt-reseed-v1"):
        check_rank(method, "randopt-reseed-v1")
