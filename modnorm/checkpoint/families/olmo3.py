"""OLMo 3: no norm before a branch, one after it; norms over the whole query and the whole key."""

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
        norm("self_attn.k_norm", size.key_value),
        norm("self_attn.q_norm", size.query),
        attention_output(size, bias=bias),
        *gated_mlp(size),
        norm("post_attention_layernorm", size.hidden),
        norm("post_feedforward_layernorm", size.hidden),
    )


OLMO3 = Family("olmo3", _layer)
