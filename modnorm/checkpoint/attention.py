"""Whether the transformers engine can decode a model, from its `config.json` alone."""

from collections.abc import Iterator, Mapping

from modnorm.errors import IncompatibleError

FULL, SLIDING = "full_attention", "sliding_attention"
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
_BY_BATCH = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose angles depend on the longest sequence of the batch."""


def check_attention(config: Mapping[str, object]) -> None:
    """Refuse attention that the slot cache cannot decode.

    Args:
        config: The decoder's part of `config.json`, or what transformers makes of it.

    Raises:
        IncompatibleError: names the key.
    """
    for cap in _CAPS:
        if config.get(cap) is not None:
            raise _refusal(cap, f"the slot cache cannot decode a model with {cap}")
    if config.get("use_bidirectional_attention"):
        raise _refusal("use_bidirectional_attention", "the slot cache needs causal attention")
    layers = config.get("layer_types")
    if isinstance(layers, list) and (odd := sorted({*map(str, layers)} - {FULL, SLIDING})):
        raise _refusal("layer_types", f"the slot cache cannot decode layers of {odd}")
    for key, kind in _rope_types(config):
        if kind in _BY_BATCH:
            raise _refusal(key, f"rotary embedding {kind!r} depends on the rest of the batch")


def _rope_types(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield key and type of each rotary embedding, in the forms of transformers 4 and 5."""
    for key in ("rope_parameters", "rope_scaling"):
        settings = config.get(key)
        if isinstance(settings, Mapping):
            for each in (settings, *settings.values()):
                if isinstance(each, Mapping):
                    yield key, each.get("rope_type", each.get("type"))


def _refusal(key: str, reason: str) -> IncompatibleError:
    return IncompatibleError(
        reason,
        field=f"model.config.{key}",
        remedy="use another model, or vLLM where it supports this one",
    )
