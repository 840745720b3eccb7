"""The stored tensors of newer families as transformers writes them, and their decoder."""

import json
import re
from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from modnorm.checkpoint.families import decoder_config, physical_layout
from modnorm.checkpoint.pretrained import load_pretrained
from modnorm.checkpoint.reference import resolve_checkpoint
from modnorm.checkpoint.weights import CheckpointWeights
from tests.checkpoint.conftest import ODD_SIZES
from tests.faults import error_at
from tests.random_models import GEMMA_4B, wrap

NORMS = "input post_attention"
MODELS = ("gemma3_text", "llama", "mistral", "olmo2", "olmo3", "qwen3")


@pytest.fixture
def save(save_model):
    return partial(save_model, dtype=torch.float32, **ODD_SIZES)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", MODELS)
def test_physical_tensors_are_the_stored_ones_stacked(save, family, tied, bias):
    directory = save(family, tie_word_embeddings=tied, attention_bias=bias)
    tensors = load_file(directory / "model.safetensors")
    weights = CheckpointWeights(resolve_checkpoint(str(directory)))
    for tensor in weights.layout:
        expected = torch.cat([tensors.pop(part.name) for part in tensor.parts])
        assert weights.read(tensor).shape == tensor.shape
        assert torch.equal(weights.read(tensor), expected)
    assert not tensors


@pytest.mark.parametrize(
    ("family", "layer"),
    [
        ("gemma3_text", f"qkv o q k gate_up down {NORMS} pre_feedforward post_feedforward"),
        ("mistral", f"qkv o gate_up down {NORMS}"),
        ("olmo2", "qkv k q o gate_up down post_attention post_feedforward"),
        ("olmo3", "qkv k q o gate_up down post_attention post_feedforward"),
        ("qwen3", f"qkv o q k gate_up down {NORMS}"),
    ],
)
def test_a_layer_in_the_order_of_the_engine(family, layer):
    prefix = "model.layers.1."
    names = [tensor.name for tensor in physical_layout({**ODD_SIZES, "model_type": family})]
    modules = [name.split(".")[-2] for name in names if name.startswith(prefix)]
    assert [re.sub("_(proj|norm|layernorm)$", "", module) for module in modules] == layer.split()


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_a_decoder_is_found_under_either_prefix(save, prefix):
    directory = save("gemma3_text")
    alone = CheckpointWeights(resolve_checkpoint(str(directory)))
    before = {tensor.name: alone.read(tensor) for tensor in alone.layout}
    wrap(directory, prefix)
    checkpoint = resolve_checkpoint(str(directory))
    inside = CheckpointWeights(checkpoint)
    assert inside.layout == alone.layout
    assert all(torch.equal(inside.read(tensor), before[tensor.name]) for tensor in inside.layout)
    assert checkpoint.config["eos_token_id"] == [2, 5]

    model = load_pretrained(checkpoint, dtype=torch.float32, attention="eager")
    held = dict(model.named_parameters())
    assert torch.equal(held["model.norm.weight"], before["model.norm.weight"])
    assert not [name for name in held if "vision" in name]


def test_the_whole_model_decides_whether_its_head_is_tied(save):
    directory = save("gemma3_text")
    wrap(directory, "language_model.model.")
    file = directory / "config.json"
    config = json.loads(file.read_text())
    config["text_config"]["tie_word_embeddings"] = False
    file.write_text(json.dumps({**config, "tie_word_embeddings": True}))
    checkpoint = resolve_checkpoint(str(directory))
    model = load_pretrained(checkpoint, dtype=torch.float32, attention="eager")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_a_published_config_omits_the_defaults():
    config = decoder_config(GEMMA_4B)
    assert config["model_type"] == "gemma3"
    assert config["max_position_embeddings"] == 131_072
    assert config["eos_token_id"] == [1, 106]
    assert decoder_config(config) == config
    layout = {tensor.name: tensor.shape for tensor in physical_layout(GEMMA_4B)}
    assert layout["model.embed_tokens.weight"] == (262_208, 2560)
    assert layout["model.layers.33.self_attn.qkv_proj.weight"] == ((8 + 2 * 4) * 256, 2560)
    assert "lm_head.weight" not in layout


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("text_config", {"text_config": ["hidden_size"]}),
        ("quantization_config", {"text_config": {"quantization_config": {"bits": 4}}}),
        ("hidden_size", {"text_config": {}}),
    ],
)
def test_faults_inside_a_multimodal_config_are_named(field, change):
    with error_at(f"model.config.{field}"):
        physical_layout({**GEMMA_4B, **change})
