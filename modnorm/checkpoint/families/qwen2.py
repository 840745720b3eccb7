"""Qwen2 and Qwen2.5: biases on query, key and value."""

from modnorm.checkpoint.config import Config
from modnorm.checkpoint.families.decoder import (
    Dimensions,
    Family,
    Module,
    attention_output,
    gated_mlp,
    norm,
    query_key_value,
)


def _layer(_: Config, size: Dimensions) -> tuple[Module, ...]:
    return (
        query_key_value(size, bias=True),
        attention_output(size),
        *gated_mlp(size),
        norm("input_layernorm", size.hidden),
        norm("post_attention_layernorm", size.hidden),
    )


QWEN2 = Family("qwen2", _layer)
