"""Llama 2 and 3: biases if `config.json` requires them."""

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
        *gated_mlp(size, bias=flag(config, "mlp_bias")),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


LLAMA = Family("llama", _layer)
