"""Scale maps of every family, compared with a second implementation and published values."""

import math

import numpy as np
import pytest

from modnorm.geometry.scales import modular_scales
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
