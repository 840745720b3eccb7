import pytest

from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.perturbation.methods import (
    METHODS,
    build_scale_map,
    check_rank,
    method_names,
    needs_profile,
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


def test_rmsnorm_only_shares_the_mass_among_the_norms():
    scale_map = build("rmsnorm_only", PROFILE)
    assert len(scale_map.active) == 17
    assert {row.group for row in scale_map.active} == {"norm"}
    for row in scale_map.active:
        assert row.mass == pytest.approx(0.1 / 17)
        assert row.base_scale == pytest.approx(17)
        assert row.scale == pytest.approx(17 * row.correction)


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
