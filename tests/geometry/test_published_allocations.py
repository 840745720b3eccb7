"""Base allocations R / s_base of public models, to the published digits."""

import pytest

from modnorm.checkpoint.families import Part, PhysicalTensor
from modnorm.geometry.scales import base_scale_map, scale_table
from modnorm.spec import Masses


def config(model_type, *sizes, **more):
    keys = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    )
    return {
        "model_type": model_type,
        "tie_word_embeddings": True,
        **dict(zip(keys, sizes, strict=True)),
        **more,
    }


QWEN_05B = config("qwen2", 896, 24, 14, 2, 4864, 151936)
QWEN_15B = config("qwen2", 1536, 28, 12, 2, 8960, 151936)
QWEN_3B = config("qwen2", 2048, 36, 16, 2, 11008, 151936)
LLAMA_3B = config("llama", 3072, 28, 24, 8, 8192, 128256, head_dim=128)


def steps(model, radius):
    """Return R / s_base by role with three digits; each role has one value."""
    table = scale_table(base_scale_map(model, Masses()), radius)
    found: dict[str, set[str]] = {}
    for row in table.values():
        role = "norm" if row["group"] == "norm" else str(row["role"])
        found.setdefault(role, set()).add(f"{row['radius_over_scale']:.2e}")
    return {role: values.pop() for role, values in found.items() if len(values) == 1}


@pytest.mark.parametrize(
    ("model", "radius", "tensors", "published"),
    [
        (QWEN_05B, 0.16, 170, "7.62e-02 5.95e-04 3.97e-04 1.06e-03 5.29e-04 1.55e-04"),
        (QWEN_15B, 0.16, 198, "7.62e-02 5.10e-04 3.40e-04 9.07e-04 4.54e-04 1.34e-04"),
        (QWEN_3B, 0.16, 254, "7.62e-02 3.97e-04 2.65e-04 7.05e-04 3.53e-04 1.04e-04"),
        (LLAMA_3B, 0.32, 170, "1.52e-01 2.04e-03 6.80e-04 1.81e-03 9.07e-04 2.67e-04"),
    ],
)
def test_base_allocations_are_the_published_ones(model, radius, tensors, published):
    roles = ("embedding", "qkv", "attention_output", "gate_up", "down", "norm")
    assert len(base_scale_map(model, Masses()).tensors) == tensors
    assert steps(model, radius) == dict(zip(roles, published.split(), strict=True))


def test_masses_and_base_scales_of_the_1_5b_model():
    layer = "model.layers.27"
    published = {
        "model.embed_tokens.weight": ("1", "2.1"),
        f"{layer}.self_attn.qkv_proj.weight": ("0.0066964", "313.6"),
        f"{layer}.self_attn.qkv_proj.bias": ("0.0066964", "313.6"),
        f"{layer}.self_attn.o_proj.weight": ("0.0044643", "470.4"),
        f"{layer}.mlp.gate_up_proj.weight": ("0.011905", "176.4"),
        f"{layer}.mlp.down_proj.weight": ("0.0059524", "352.8"),
        f"{layer}.input_layernorm.weight": ("0.0017544", "1197"),
        f"{layer}.post_attention_layernorm.weight": ("0.0017544", "1197"),
        "model.norm.weight": ("0.0017544", "1197"),
    }
    table = scale_table(base_scale_map(QWEN_15B, Masses()), 0.16)
    for name, (mass, base) in published.items():
        assert f"{table[name]['mass']:.5g}" == mass
        assert f"{table[name]['base_scale']:.5g}" == base
    assert sum(row["group"] == "norm" for row in table.values()) == 57


def decoder(layers, norms, *, tied):
    """Return physical tensors of a family that norms its outputs, of arbitrary sizes."""
    names = ["model.embed_tokens.weight"]
    linear = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")
    for layer in range(layers):
        names += [f"model.layers.{layer}.{module}.weight" for module in (*linear, *norms)]
    names += ["model.norm.weight"] if tied else ["model.norm.weight", "lm_head.weight"]
    shapes = ((8,) if "norm" in name else (8, 8) for name in names)
    return tuple(
        PhysicalTensor(name, shape, (Part(name, 8),))
        for name, shape in zip(names, shapes, strict=True)
    )


OUTPUT_NORMS = (
    "self_attn.q_norm",
    "self_attn.k_norm",
    "post_attention_layernorm",
    "post_feedforward_layernorm",
)
GEMMA_4B = decoder(34, (*OUTPUT_NORMS, "input_layernorm", "pre_feedforward_layernorm"), tied=True)
OLMO_7B = decoder(32, OUTPUT_NORMS, tied=False)
