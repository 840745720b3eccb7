import pytest

from modnorm.checkpoint.families import Part, physical_layout
from tests.faults import error_at

CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16,
    "tie_word_embeddings": True,
}


def shapes(**changes):
    return {t.name: t.shape for t in physical_layout({**CONFIG, **changes})}


def test_qwen2_tensors_in_the_order_of_the_engine():
    assert list(shapes().items()) == [
        ("model.embed_tokens.weight", (16, 8)),
        ("model.layers.0.self_attn.qkv_proj.weight", (16, 8)),
        ("model.layers.0.self_attn.qkv_proj.bias", (16,)),
        ("model.layers.0.self_attn.o_proj.weight", (8, 8)),
        ("model.layers.0.mlp.gate_up_proj.weight", (24, 8)),
        ("model.layers.0.mlp.down_proj.weight", (8, 12)),
        ("model.layers.0.input_layernorm.weight", (8,)),
        ("model.layers.0.post_attention_layernorm.weight", (8,)),
        ("model.norm.weight", (8,)),
    ]


def test_fused_tensors_list_their_parts_in_row_order():
    layout = {tensor.name: tensor for tensor in physical_layout(CONFIG)}
    attention = "model.layers.0.self_attn"
    assert layout[f"{attention}.qkv_proj.bias"].parts == (
        Part(f"{attention}.q_proj.bias", 8),
        Part(f"{attention}.k_proj.bias", 4),
        Part(f"{attention}.v_proj.bias", 4),
    )
    assert layout["model.layers.0.mlp.gate_up_proj.weight"].parts == (
        Part("model.layers.0.mlp.gate_proj.weight", 12),
        Part("model.layers.0.mlp.up_proj.weight", 12),
    )


def test_llama_biases_follow_the_config():
    plain = shapes(model_type="llama")
    assert not [name for name in plain if name.endswith("bias")]
    both = shapes(model_type="llama", attention_bias=True, mlp_bias=True)
    assert {
        name.removeprefix("model.layers.0."): shape
        for name, shape in both.items()
        if name.endswith("bias")
    } == {
        "self_attn.qkv_proj.bias": (16,),
        "self_attn.o_proj.bias": (8,),
        "mlp.gate_up_proj.bias": (24,),
        "mlp.down_proj.bias": (8,),
    }


@pytest.mark.parametrize(
    "key",
    [k for k in CONFIG if k not in {"model_type", "tie_word_embeddings", "num_key_value_heads"}],
)
def test_every_size_is_required(key):
    with error_at(f"model.config.{key}", key):
        physical_layout({k: v for k, v in CONFIG.items() if k != key})


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("model_type", {"model_type": "deepseek_v3"}),
        ("model_type", {"model_type": None}),
        ("model_type", {"model_type": ["qwen2"]}),
        ("quantization_config", {"quantization_config": {"quant_method": "awq"}}),
        ("quantization_config", {"quantization_config": {}}),
        ("auto_map", {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}),
        ("transformers_weights", {"transformers_weights": "other.safetensors"}),
        ("num_attention_heads", {"num_key_value_heads": 3}),
        ("hidden_size", {"hidden_size": 9}),
    ],
)
def test_unsupported_configurations_name_the_key(field, changes):
    with error_at(f"model.config.{field}"):
        physical_layout({**CONFIG, **changes})
