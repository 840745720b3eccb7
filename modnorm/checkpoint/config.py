"""Typed reading of `config.json`; errors name the key."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from modnorm.errors import IncompatibleError, InvalidInputError
from modnorm.files import read_fault, read_text

Config = Mapping[str, object]

MAX_JSON_BYTES = 64 * 2**20
"""Size limit of a JSON file; the index of a model with 400 billion weights has 0.1 MB."""
MAX_LAYERS, MAX_HEADS, MAX_WIDTH = 1_000, 2**12, 2**20
MAX_VOCABULARY, MAX_POSITIONS = 2**24, 2**30
_MOST: Mapping[str, int] = {
    "num_hidden_layers": MAX_LAYERS,
    "num_attention_heads": MAX_HEADS,
    "num_key_value_heads": MAX_HEADS,
    "head_dim": MAX_WIDTH,
    "hidden_size": MAX_WIDTH,
    "intermediate_size": MAX_WIDTH,
    "vocab_size": MAX_VOCABULARY,
    "max_position_embeddings": MAX_POSITIONS,
}
"""Bounds above every real model: these sizes build a layout before any weight is read."""


def load_config(path: Path, *, field: str = "model.name") -> Config:
    """Read a `config.json`."""
    file = path / "config.json" if path.is_dir() else path
    data = load_json(file, field=field)
    if not isinstance(data, dict):
        raise InvalidInputError(f"{file} is not a JSON object", field=field)
    return data


def load_json(file: Path, *, field: str = "model.name") -> object:
    """Read one JSON file of a checkpoint."""
    try:
        return json.loads(read_text(file, most=MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read {file}: {read_fault(error)}", field=field) from error


def positive(config: Config, key: str) -> int:
    """Return a required positive integer."""
    value = optional_positive(config, key)
    if value is None:
        raise InvalidInputError(f"config.json lacks {key}", field=f"model.config.{key}")
    return value


def optional_positive(config: Config, key: str) -> int | None:
    """Return a positive integer, or None if the key is absent or null."""
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(
            f"{key} must be a positive integer, not {value!r}", field=f"model.config.{key}"
        )
    if value > _MOST.get(key, value):
        raise InvalidInputError(
            f"{key} is {value:,}; no supported model has more than {_MOST[key]:,}",
            field=f"model.config.{key}",
        )
    return value


def flag(config: Config, key: str) -> bool:
    """Return a boolean; absent or null means false."""
    value = config.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidInputError(
            f"{key} must be true or false, not {value!r}", field=f"model.config.{key}"
        )
    return value


FULL, SLIDING = "full_attention", "sliding_attention"
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
_BY_BATCH = frozenset({"dynamic", "longrope"})
"""Rotary embeddings whose angles depend on the longest sequence of the batch."""


def check_attention(config: Mapping[str, object]) -> None:
    """Refuse attention that the slot cache cannot decode."""
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
