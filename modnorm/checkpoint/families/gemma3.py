"""Gemma 3: norms before and after each branch, and over each head of query and key.

The 1B checkpoints are `gemma3_text`. Larger ones are `gemma3`: the same decoder under
`language_model`, and a vision tower that is neither loaded nor perturbed.
"""

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
        norm("pre_feedforward_layernorm", size.hidden),
        norm("post_feedforward_layernorm", size.hidden),
    )


_DEFAULTS = MappingProxyType(
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

GEMMA3_TEXT = Family("gemma3_text", _layer, defaults=_DEFAULTS)
GEMMA3 = Family("gemma3", _layer, defaults=_DEFAULTS, prefixes=_PREFIXES, ignored=_VISION)
