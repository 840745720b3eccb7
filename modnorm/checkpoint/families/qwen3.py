"""Qwen3: a norm over each head of query and key; biases only if `config.json` requires them."""

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


def _layer(config: Config, size: Dimensions) -> tuple[Module, ...]:
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


QWEN3 = Family("qwen3", _layer, defaults=MappingProxyType({"head_dim": 128}))
