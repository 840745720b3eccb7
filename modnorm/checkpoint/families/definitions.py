"""The supported decoders: the modules of one layer in the engine's order, and the defaults."""

from collections.abc import Mapping
from types import MappingProxyType

from modnorm.checkpoint.config import Config, flag
from modnorm.checkpoint.families.decoder import (
    Dimensions,
    Family,
    Module,
    attention_output,
    gated_mlp,
    norm,
    query_key_value,
)


def _llama(config: Config, size: Dimensions) -> tuple[Module, ...]:
    """Llama 2 and 3: biases if `config.json` requires them."""
    bias = flag(config, "attention_bias")
    return (
        query_key_value(size, bias=bias),
        attention_output(size, bias=bias),
        *gated_mlp(size, bias=flag(config, "mlp_bias")),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


def _mistral(_: Config, size: Dimensions) -> tuple[Module, ...]:
    """Mistral: no biases, whatever `config.json` says."""
    return (
        query_key_value(size),
        attention_output(size),
        *gated_mlp(size),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


def _olmo(config: Config, size: Dimensions) -> tuple[Module, ...]:
    """OLMo 2 and 3: norms after each branch, and over the whole query and the whole key."""
    bias = flag(config, "attention_bias")
    return (
        query_key_value(size, bias=bias),
        norm("self_attn.k_norm", size.key_value),
        norm("self_attn.q_norm", size.query),
        attention_output(size, bias=bias),
        *gated_mlp(size),
        norm("post_attention_layernorm", size.hidden),
        norm("post_feedforward_layernorm", size.hidden),
    )


def _qwen2(_: Config, size: Dimensions) -> tuple[Module, ...]:
    """Qwen2 and Qwen2.5: biases on query, key and value."""
    return (
        query_key_value(size, bias=True),
        attention_output(size),
        *gated_mlp(size),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


def _qwen3(config: Config, size: Dimensions) -> tuple[Module, ...]:
    """Qwen3: norms over each head of query and key; biases if `config.json` requires them."""
    bias = flag(config, "attention_bias")
    return (
        query_key_value(size, bias=bias),
        attention_output(size, bias=bias),
        norm("self_attn.q_norm", size.head),
        norm("self_attn.k_norm", size.head),
        *gated_mlp(size),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


def _gemma3(config: Config, size: Dimensions) -> tuple[Module, ...]:
    """Gemma 3: norms before and after each branch, and over each head of query and key.

    The 1B checkpoints are `gemma3_text`. Larger ones are `gemma3`: the same decoder under
    `language_model`, and a vision tower that is neither loaded nor perturbed.
    """
    bias = flag(config, "attention_bias")
    return (
        query_key_value(size, bias=bias),
        attention_output(size, bias=bias),
        norm("self_attn.q_norm", size.head),
        norm("self_attn.k_norm", size.head),
        *gated_mlp(size),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
        norm("pre_feedforward_layernorm", size.hidden),
        norm("post_feedforward_layernorm", size.hidden),
    )


_GEMMA3_DEFAULTS = MappingProxyType(
    {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    }
)
"""Keys that the `config.json` of gemma-3-4b-it omits."""
_PREFIXES = MappingProxyType(
    {
        "language_model.model.": "model.",
        "language_model.lm_head.": "lm_head.",
        "model.language_model.": "model.",
    }
)
_VISION = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.model_type: family
        for family in (
            Family("llama", _llama),
            Family("mistral", _mistral),
            Family("olmo2", _olmo),
            Family("olmo3", _olmo),
            Family("qwen2", _qwen2),
            Family("qwen3", _qwen3, defaults=MappingProxyType({"head_dim": 128})),
            Family("gemma3_text", _gemma3, defaults=_GEMMA3_DEFAULTS),
            Family(
                "gemma3",
                _gemma3,
                defaults=_GEMMA3_DEFAULTS,
                prefixes=_PREFIXES,
                ignored=_VISION,
                decoder_prefix="model.language_model.",
            ),
        )
    }
)
"""Supported families by `model_type`."""
