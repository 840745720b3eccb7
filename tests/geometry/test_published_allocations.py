"""Base allocations R / s_base of public models, to the published digits."""

import pytest

from modnorm.checkpoint.families import physical_layout
from modnorm.geometry.scale_map import ScaleMap
from modnorm.geometry.scales import scale_table, uncorrected_scales
from modnorm.spec import Masses
from tests.random_models import GEMMA_4B


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
OLMO_7B = config("olmo3", 4096, 32, 32, 32, 11008, 100278, tie_word_embeddings=False)


def base_map(model):
    return ScaleMap("no_sensitivity", "", uncorrected_scales(physical_layout(model), Masses()))


def steps(model, radius):
    """Return R / s_base by role with three digits; each role has one value."""
    table = scale_table(base_map(model), radius)
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
        (GEMMA_4B, 0.64, 342, "3.05e-01 3.36e-03 1.12e-03 2.99e-03 1.49e-03 1.49e-04"),
        (OLMO_7B, 0.64, 259, "2.06e-01 2.42e-03 8.06e-04 2.15e-03 1.08e-03 1.60e-04"),
    ],
)
def test_base_allocations_are_the_published_ones(model, radius, tensors, published):
    roles = ("embedding", "qkv", "attention_output", "gate_up", "down", "norm")
    assert len(base_map(model).tensors) == tensors
    found = steps(model, radius)
    assert [found[role] for role in roles] == published.split()
    assert found.get("output_head", found["embedding"]) == found["embedding"]


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
    table = scale_table(base_map(QWEN_15B), 0.16)
    for name, (mass, base) in published.items():
        assert f"{table[name]['mass']:.5g}" == mass
        assert f"{table[name]['base_scale']:.5g}" == base
    assert sum(row["group"] == "norm" for row in table.values()) == 57
