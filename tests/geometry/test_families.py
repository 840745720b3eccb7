"""Scale maps of every family, compared with a second implementation and published values."""

import math
from statistics import median

import numpy as np
import pytest

from modnorm.geometry.scales import base_scale_map, modular_scales
from modnorm.spec import Masses

LAYERS = 5
METRICS = (
    "attention_module",
    "mlp_module",
    "q_norm",
    "k_norm",
    "attention_output_norm",
    "mlp_output_norm",
)
TENSORS = {
    "qwen2": 7,
    "llama": 6,
    "mistral": 6,
    "qwen3": 8,
    "olmo2": 8,
    "olmo3": 8,
    "gemma3_text": 10,
    "gemma3": 10,
}
"""Tensors of one layer, over which its median is taken."""
VARIANTS = [
    (family, changes)
    for family in TENSORS
    for changes in ({"tie_word_embeddings": True}, {"tie_word_embeddings": False})
] + [
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    ("llama", {"tie_word_embeddings": False, "head_dim": 16}),
]

# An independent float64 implementation of appendix A, extended to layers that norm query, key
# and outputs, from tensor names and arrays.


def clipped(x, low=0.25, high=4.0):
    return min(max(x, low), high)


def paper_gain(weight):
    w = weight.double().numpy()
    v = np.ones(w.shape[1]) / math.sqrt(w.shape[1])
    for _ in range(8):
        u = w @ v
        v = w.T @ (u / np.linalg.norm(u))
        v = v / np.linalg.norm(v)
    return clipped(math.sqrt(w.shape[1] / w.shape[0]) * np.linalg.norm(w @ v))


def paper_mass(name, names):
    if "norm" in name:
        return 0.1 / sum("norm" in other for other in names)
    if "layers" not in name:
        return 1.0
    module = name.rsplit(".", 1)[0]
    share = {"qkv_proj": 3 / 4, "o_proj": 1 / 4, "gate_up_proj": 2 / 3, "down_proj": 1 / 3}
    twins = sum(other.startswith(f"{module}.") for other in names)
    return 0.5 / LAYERS * share[module.split(".")[-1]] / twins


def paper_raw(names, gain, gamma):
    """Return the raw correction of each tensor of a layer, by its name inside the layer."""
    norms_heads = "self_attn.q_norm.weight" in names
    norms_outputs = "post_feedforward_layernorm.weight" in names
    q, o = gain["self_attn.qkv_proj.weight"], gain["self_attn.o_proj.weight"]
    g, d = gain["mlp.gate_up_proj.weight"], gain["mlp.down_proj.weight"]
    k = max(clipped(gamma["q_norm"]), clipped(gamma["k_norm"])) if norms_heads else 1.0
    a = clipped(gamma["attention_output_norm"]) if norms_outputs else 1.0
    b = clipped(gamma["mlp_output_norm"]) if norms_outputs else 1.0
    phi_a = clipped(clipped(gamma["attention_module"]) / (q * k * o))
    phi_f = clipped(clipped(gamma["mlp_module"]) / (g * d))
    before_mlp = g * phi_f * d * b
    raw = {
        "input_layernorm.weight": q * k * phi_a * o * a,
        "self_attn.qkv_proj.weight": k * phi_a * o * a,
        "self_attn.qkv_proj.bias": k * phi_a * o * a,
        "self_attn.q_norm.weight": phi_a * o * a,
        "self_attn.k_norm.weight": phi_a * o * a,
        "self_attn.o_proj.weight": a,
        "self_attn.o_proj.bias": a,
        "post_attention_layernorm.weight": 1.0 if norms_outputs else before_mlp,
        "pre_feedforward_layernorm.weight": before_mlp,
        "mlp.gate_up_proj.weight": phi_f * d * b,
        "mlp.gate_up_proj.bias": phi_f * d * b,
        "mlp.down_proj.weight": b,
        "mlp.down_proj.bias": b,
        "post_feedforward_layernorm.weight": 1.0,
    }
    return {name: raw[name] for name in names}


def paper_scales(weights, sensitivities):
    mass = {name: paper_mass(name, list(weights)) for name in weights}
    result = {name: sum(mass.values()) / mass[name] for name in weights}
    for layer, gamma in enumerate(sensitivities):
        prefix = f"model.layers.{layer}."
        mine = {
            name.removeprefix(prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(prefix)
        }
        gain = {name: paper_gain(tensor) for name, tensor in mine.items() if tensor.ndim == 2}
        raw = paper_raw(list(mine), gain, gamma)
        ordered = sorted(raw.values())
        middle = (ordered[(len(raw) - 1) // 2] + ordered[len(raw) // 2]) / 2
        for name in mine:
            result[prefix + name] *= min(max(raw[name] / middle, 0.5), 2)
    return result


def drawn(seed):
    draw = np.random.default_rng(seed)
    return [
        {metric: float(10 ** draw.uniform(-1, 1.2)) for metric in METRICS} for _ in range(LAYERS)
    ]


def scaled(model, sensitivities):
    return modular_scales(
        model.layout, masses=Masses(), read=model.read, sensitivities=sensitivities
    )


@pytest.mark.parametrize(("family", "changes"), VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_scales_are_those_of_the_paper(make_model, family, changes, seed):
    model = make_model(seed, model_type=family, **{"head_dim": 12, **changes})
    sensitivities = drawn(seed)
    found = {row.name: row.scale for row in scaled(model, sensitivities)}
    assert found == pytest.approx(paper_scales(model.weights, sensitivities), rel=1e-5)
    assert list(found) == list(model.weights)


@pytest.mark.parametrize("family", TENSORS)
def test_a_layer_is_measured_by_the_median_of_its_tensors(make_model, family):
    for row in (rows := scaled(make_model(2, model_type=family, head_dim=12), drawn(9))):
        assert 0.5 <= row.correction <= 2
        assert row.layer is not None or row.correction == 1
    for layer in range(LAYERS):
        ratios = [row.correction for row in rows if row.layer == layer]
        assert len(ratios) == TENSORS[family]
        if len(ratios) % 2:
            assert median(ratios) == 1
        else:
            low, high = sorted(ratios)[len(ratios) // 2 - 1 : len(ratios) // 2 + 1]
            assert low <= 1 <= high


def allocation(config, radius):
    """Return R / s_base by role, with three digits."""
    found: dict[str, set[str]] = {}
    for row in base_scale_map(config, Masses()).tensors:
        role = "norm" if row.group == "norm" else row.role
        found.setdefault(role, set()).add(f"{radius / row.base_scale:.2e}")
    return {role: values.pop() for role, values in found.items() if len(values) == 1}


GEMMA_4B = {
    "model_type": "gemma3",
    "eos_token_id": [1, 106],
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152},
}
"""As published, without defaults."""
OLMO_7B = {
    "model_type": "olmo3",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 100278,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("config", "tensors", "norms", "published"),
    [
        (GEMMA_4B, 342, 205, "3.05e-01 3.36e-03 1.12e-03 2.99e-03 1.49e-03 1.49e-04"),
        (OLMO_7B, 259, 129, "2.06e-01 2.42e-03 8.06e-04 2.15e-03 1.08e-03 1.60e-04"),
    ],
)
def test_base_allocations_are_the_published_ones(config, tensors, norms, published):
    rows = base_scale_map(config, Masses()).tensors
    assert len(rows) == tensors
    assert sum(row.group == "norm" for row in rows) == norms
    found = allocation(config, 0.64)
    names = ("embedding", "qkv", "attention_output", "gate_up", "down", "norm")
    assert [found[name] for name in names] == published.split()
    assert found.get("output_head", found["embedding"]) == found["embedding"]


QWEN_05B = [(2.325, 4.368), (1.744, 2.098), (2.12, 147.591), (7.725, 51.568), (8.876, 1.871)]
"""Sensitivities of attention and MLP in layers 0 to 4 of Qwen2.5-0.5B.

They are from the published profile with the fingerprint 6d4003726215f094.
"""


@pytest.mark.parametrize(
    ("metric", "roles", "free"),
    [
        ("attention_module", {"input_norm", "qkv"}, {0, 1, 2}),
        ("mlp_module", {"post_attention_norm", "gate_up"}, {1, 4}),
    ],
)
def test_published_sensitivities_saturate_as_known(make_model, metric, roles, free):
    model = make_model(3)
    unit = {
        name: np.sqrt(w.shape[0] / w.shape[1]) * w.new_ones(w.shape) / np.sqrt(w.numel())
        for name, w in model.weights.items()
        if w.ndim == 2
    }
    model.weights.update(unit)
    measured = [{"attention_module": a, "mlp_module": f} for a, f in QWEN_05B]
    raised = [{**layer, metric: layer[metric] + 0.05} for layer in measured]
    before, after = scaled(model, measured), scaled(model, raised)
    changed = {
        (row.layer, row.role)
        for row, other in zip(before, after, strict=True)
        if row.correction != other.correction
    }
    assert {layer for layer, _ in changed} <= free
    assert {role for _, role in changed} & roles


# Sensitivities that the published calibrations found, clipped at 4 (profiles
# gemma3-4b-countdown-modular-shell-official-randopt and olmo3-7b-... of the published code):
# layers 0 and 1 of Gemma 3 4B, layer 0 of OLMo 3 7B.
SATURATED = dict.fromkeys(METRICS, 4.0)
GEMMA_LAYERS = [{**SATURATED, "q_norm": 0.352, "k_norm": 0.9483439772536968}, SATURATED]


def test_one_number_of_gemmas_calibration_reaches_the_scales(make_model):
    model = make_model(1, model_type="gemma3_text", head_dim=12, num_hidden_layers=2)
    found, saturated = (scaled(model, layers) for layers in (GEMMA_LAYERS, [SATURATED] * 2))
    changed = {row.layer for row, other in zip(found, saturated, strict=True) if row != other}
    assert changed == {0}
    smaller = [{**GEMMA_LAYERS[0], "q_norm": 0.3}, SATURATED]
    assert scaled(model, smaller) == found


@pytest.mark.parametrize(
    ("metric", "reaches"),
    [("attention_output_norm", True), ("mlp_output_norm", True), ("attention_residual", False)],
)
def test_output_norms_of_olmo_reach_the_scales(make_model, metric, reaches):
    model = make_model(1, model_type="olmo3")
    base = scaled(model, [SATURATED] * LAYERS)
    # 1.2975677493179927: attention_output_norm of layer 0
    moved = scaled(model, [{**SATURATED, metric: 1.2975677493179927}] * LAYERS)
    assert (moved != base) == reaches
