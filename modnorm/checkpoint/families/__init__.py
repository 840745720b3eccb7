"""Model families: how `config.json` determines the physical tensors (docs/families.md)."""

from collections.abc import Mapping

from modnorm.checkpoint.config import Config
from modnorm.checkpoint.families.decoder import Dimensions, Family
from modnorm.checkpoint.families.definitions import FAMILIES
from modnorm.checkpoint.layout import Layout
from modnorm.errors import InvalidInputError

__all__ = ["FAMILIES", "Dimensions", "decoder_config", "family_of", "physical_layout"]

_MULTIMODAL_KEYS = frozenset({"text_config", "vision_config"})


def physical_layout(config: Config) -> Layout:
    """Return all physical tensors of a model from its `config.json` alone."""
    return family_of(config).layout(decoder_config(config))


def decoder_config(config: Config) -> Config:
    """Return the decoder's configuration, with the defaults of its family.

    In a multimodal model it is `text_config`. Keys beside `text_config` hold for the whole model
    and take precedence (tied embeddings, stop tokens); `model_type` stays the whole model's.
    """
    defaults = family_of(config).defaults
    inner = config.get("text_config")
    if inner is not None and not isinstance(inner, Mapping):
        raise InvalidInputError(
            "text_config is not a JSON object",
            field="model.config.text_config",
            remedy="correct config.json",
        )
    merged = {**defaults, **_without_nulls(inner or {}), **_without_nulls(config)}
    _require_plain(merged)
    return {key: value for key, value in merged.items() if key not in _MULTIMODAL_KEYS}


def family_of(config: Config) -> Family:
    """Return the family that a `config.json` names."""
    model_type = config.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InvalidInputError(
            f"model_type {model_type!r} is not supported",
            field="model.config.model_type",
            remedy=f"supported: {', '.join(sorted(FAMILIES))}",
        )
    return family


def _without_nulls(config: Config) -> Config:
    return {key: value for key, value in config.items() if value is not None}


def _require_plain(config: Config) -> None:
    """Refuse configurations under which the stored tensors are not the plain weights."""
    if "quantization_config" in config:
        raise InvalidInputError(
            "the checkpoint is quantised; perturbations are defined on unquantised weights",
            field="model.config.quantization_config",
            remedy="use the original bfloat16, float16 or float32 checkpoint",
        )
    if config.get("auto_map"):
        raise InvalidInputError(
            "the checkpoint needs its own code (auto_map), which is never run",
            field="model.config.auto_map",
            remedy="use a checkpoint of a supported family without remote code",
        )
    if "transformers_weights" in config:
        raise InvalidInputError(
            "transformers_weights names other weights, which transformers loads and vLLM does not",
            field="model.config.transformers_weights",
            remedy="save the model with save_pretrained, which omits it",
        )
