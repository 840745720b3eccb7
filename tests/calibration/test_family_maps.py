"""The maps of every family on tiny random models, in float64."""

import json

import pytest
import torch

from modnorm.calibration.calibrate import calibrate, freeze
from modnorm.calibration.maps import FAMILIES, capture, layer_maps, operator_norm, start_vector
from modnorm.checkpoint.families import FAMILIES as LAID_OUT
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.spec import CalibrationSpec
from tests.random_models import random_model

PROMPT = [3, 1, 4, 1, 5]
SIZES = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 6,
    "vocab_size": 20,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention"],
}
CHANGES: dict[str, dict[str, object]] = {
    "gemma3_text": {},
    "llama": {"layer_types": None, "sliding_window": None},
    "mistral": {"layer_types": None},
    "olmo2": {"layer_types": None},
    "olmo3": {},
    "qwen2": {"layer_types": ["full_attention"] * 2, "head_dim": 4},
    "qwen3": {"layer_types": ["full_attention"] * 2},
}
SETTINGS = CalibrationSpec(examples=1, layers_per_example=2, max_length=5)


def make(family):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = random_model(family, **{**SIZES, **CHANGES[family]})
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.data.add_(0.5 * torch.rand(parameter.shape))
    model.set_attn_implementation("eager")
    return model


def captured(family, layer, maps="default"):
    """Return the sites of a layer by metric, and the input of the next module."""
    frozen = freeze(make(family).double())
    chosen = layer_maps(family, maps)
    block = frozen.layers[layer]
    follower = frozen.layers[layer + 1] if layer + 1 < len(frozen.layers) else frozen.final_norm
    watched = [block.get_submodule(path) for path in chosen.watched]
    *calls, after = capture(frozen.decoder, torch.tensor([PROMPT]), [*watched, follower])
    sites = chosen.sites(block, dict(zip(chosen.watched, calls, strict=True)))
    return dict(zip(chosen.metrics, sites, strict=True)), after.hidden


def value(site):
    with torch.no_grad():
        return site.function(site.at)


def test_every_family_with_a_layout_can_be_calibrated():
    assert set(FAMILIES) == set(LAID_OUT)


PRE_NORM = """input_norm post_attention_norm attention_module attention_residual mlp_module
mlp_residual block"""
OLMO3 = """q_norm k_norm attention_module attention_output_norm attention_residual
mlp_module mlp_output_norm mlp_residual block"""
GEMMA3 = """input_norm q_norm k_norm attention_module attention_output_norm attention_residual
pre_feedforward_norm mlp_module mlp_output_norm mlp_residual block"""


@pytest.mark.parametrize(
    ("family", "metrics"),
    [("qwen2", PRE_NORM), ("olmo3", OLMO3), ("gemma3_text", GEMMA3), ("gemma3", GEMMA3)],
)
def test_the_order_is_that_of_the_published_code(family, metrics):
    for maps in ("default", "published"):
        assert layer_maps(family, maps).metrics == tuple(metrics.split())


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("family", CHANGES)
def test_the_maps_compose_to_the_plain_forward(family, layer):
    sites, output = captured(family, layer)
    h, r = sites["block"].at, sites["mlp_residual"].at
    attention, mlp = sites["attention_module"], sites["mlp_module"]
    before_mlp = sites.get("post_attention_norm") or sites.get("pre_feedforward_norm")
    normed = value(sites["input_norm"]) if "input_norm" in sites else h
    assert torch.equal(normed, attention.at)
    assert torch.equal(value(before_mlp) if before_mlp else r, mlp.at)
    attended, fed = value(attention), value(mlp)
    if "attention_output_norm" in sites:
        assert torch.equal(attended, sites["attention_output_norm"].at)
        assert torch.equal(fed, sites["mlp_output_norm"].at)
        attended = value(sites["attention_output_norm"])
        fed = value(sites["mlp_output_norm"])
    assert torch.equal(h + attended, r)
    assert torch.equal(value(sites["attention_residual"]), r)
    assert torch.equal(r + fed, output)
    assert torch.equal(value(sites["mlp_residual"]), output)
    assert torch.equal(value(sites["block"]), output)


@pytest.mark.parametrize("family", CHANGES)
def test_estimates_are_those_of_the_exact_jacobian(family):
    sites, _ = captured(family, 0)
    for metric, site in sites.items():
        jacobian = torch.func.jacrev(site.function)(site.at).reshape(-1, site.at.numel())
        vector = start_vector(site.at, 7).flatten()
        for _ in range(3):
            pulled = jacobian.T @ torch.nn.functional.normalize(jacobian @ vector, dim=0)
            vector = torch.nn.functional.normalize(pulled, dim=0)
        expected = (jacobian @ vector).norm().item()
        estimate = operator_norm(site.function, site.at, seed=7)
        # transformers' norms compute in float32 in every dtype
        assert estimate == pytest.approx(expected, rel=1e-5), metric
        assert estimate <= torch.linalg.svdvals(jacobian)[0].item() * (1 + 1e-5)


def test_attention_is_measured_within_its_window():
    site = captured("gemma3_text", 0)[0]["attention_module"]
    moved = site.at.clone()
    moved[:, 0] += 1.0
    with torch.no_grad():
        change = (site.function(moved) - site.function(site.at)).abs().sum(-1)[0]
    assert (change > 0).tolist() == [True, True, True, False, False]


def test_the_published_maps_of_gemma_norm_their_input_twice():
    right, published = captured("gemma3_text", 1)[0], captured("gemma3_text", 1, "published")[0]
    for module, norm in (
        ("attention_module", "input_norm"),
        ("mlp_module", "pre_feedforward_norm"),
    ):
        assert torch.equal(published[module].at, right[module].at)
        with torch.no_grad():
            expected = right[module].function(right[norm].function(right[module].at))
        assert torch.equal(value(published[module]), expected)
        assert not torch.equal(value(published[module]), value(right[module]))
    for metric in right.keys() - {"attention_module", "mlp_module"}:
        assert torch.equal(value(published[metric]), value(right[metric]))


def test_a_profile_records_its_maps(on_cpu, tmp_path):
    make("gemma3_text").save_pretrained(tmp_path)
    checkpoint = resolve_checkpoint(str(tmp_path))
    profiles = [
        calibrate(checkpoint, [PROMPT], settings, task="countdown")
        for settings in (SETTINGS, SETTINGS.model_copy(update={"maps": "published"}))
    ]
    right, published = (json.loads(profile.to_json()) for profile in profiles)
    assert "maps" not in right["calibration"]
    assert published["calibration"]["maps"] == "published"
    differing = {
        metric
        for layer in ("0", "1")
        for metric, entry in right["layers"][layer].items()
        if entry != published["layers"][layer][metric]
    }
    assert differing == {"attention_module", "mlp_module"}
    for profile in profiles:
        profile.check_matches(checkpoint)


def test_default_maps_do_not_change_the_digests_of_settings():
    assert "maps" not in SETTINGS.model_dump()
    assert CalibrationSpec(maps="published").model_dump()["maps"] == "published"
