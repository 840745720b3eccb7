"""Model families: how `config.json` determines the physical tensors.

A family is a small table. A new one is a `Family` with the modules of one decoder layer, in the
order in which the inference engine registers its parameters.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from modnorm.checkpoint.config import Config, flag, optional_positive, positive
from modnorm.checkpoint.layout import Layout, Part, PhysicalTensor
from modnorm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Sizes of a decoder."""

    hidden: int
    intermediate: int
    layers: int
    query: int
    """Rows of the query projection: heads times head size."""
    key_value: int
    """Rows of the key projection, and of the value projection."""
    vocabulary: int
    tied: bool
    """Whether the token embedding is the output head too."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Read the sizes; `head_dim` and `num_key_value_heads` have their usual defaults.

        Raises:
            InvalidInputError: a size is missing, malformed or does not divide.
        """
        heads = positive(config, "num_attention_heads")
        groups = optional_positive(config, "num_key_value_heads") or heads
        _require_divisible(config, "num_attention_heads", heads, groups)
        hidden = positive(config, "hidden_size")
        head = optional_positive(config, "head_dim")
        if head is None:
            _require_divisible(config, "hidden_size", hidden, heads)
            head = hidden // heads
        return cls(
            hidden=hidden,
            intermediate=positive(config, "intermediate_size"),
            layers=positive(config, "num_hidden_layers"),
            query=heads * head,
            key_value=groups * head,
            vocabulary=positive(config, "vocab_size"),
            tied=flag(config, "tie_word_embeddings"),
        )


@dataclass(frozen=True, slots=True)
class Module:
    """A leaf module of a decoder layer: a (fused) projection or a norm."""

    name: str
    """Name inside the layer, as the engine has it: `self_attn.qkv_proj`."""
    parts: tuple[Part, ...]
    """Modules of the checkpoint that it fuses, with their output rows."""
    inputs: int | None = None
    """Input size of a projection; None for a norm, whose weight is a vector."""
    bias: bool = False

    def tensors(self, prefix: str) -> Iterator[PhysicalTensor]:
        """Yield weight and bias, named under `prefix`."""
        columns = () if self.inputs is None else (self.inputs,)
        yield self._tensor(prefix, "weight", columns)
        if self.bias:
            yield self._tensor(prefix, "bias", ())

    def _tensor(self, prefix: str, kind: str, columns: tuple[int, ...]) -> PhysicalTensor:
        rows = sum(part.rows for part in self.parts)
        parts = tuple(Part(f"{prefix}{part.name}.{kind}", part.rows) for part in self.parts)
        return PhysicalTensor(f"{prefix}{self.name}.{kind}", (rows, *columns), parts)


@dataclass(frozen=True, slots=True)
class Family:
    """One `model_type`."""

    model_type: str
    layer: Callable[[Config, Dimensions], tuple[Module, ...]]
    """Modules of one decoder layer, in the engine's order."""

    def layout(self, config: Config) -> Layout:
        """Return the physical tensors, in the order of the engine's own parameters."""
        size = Dimensions.from_config(config)
        layer = self.layer(config, size)
        embedding = _linear("embed_tokens", size.vocabulary, size.hidden)
        head = () if size.tied else (_linear("lm_head", size.vocabulary, size.hidden),)
        return (
            *embedding.tensors("model."),
            *(
                tensor
                for index in range(size.layers)
                for module in layer
                for tensor in module.tensors(f"model.layers.{index}.")
            ),
            *_norm("norm", size.hidden).tensors("model."),
            *(tensor for module in head for tensor in module.tensors("")),
        )


def _linear(name: str, rows: int, inputs: int, *, bias: bool = False) -> Module:
    return Module(name, (Part(name, rows),), inputs, bias)


def _norm(name: str, size: int) -> Module:
    return Module(name, (Part(name, size),))


def _gated_decoder_layer(
    size: Dimensions, *, qkv_bias: bool, output_bias: bool, mlp_bias: bool
) -> tuple[Module, ...]:
    """Pre-norm layer of grouped-query attention and a gated MLP."""
    query, key, value = (
        Part("self_attn.q_proj", size.query),
        Part("self_attn.k_proj", size.key_value),
        Part("self_attn.v_proj", size.key_value),
    )
    gate, up = Part("mlp.gate_proj", size.intermediate), Part("mlp.up_proj", size.intermediate)
    return (
        Module("self_attn.qkv_proj", (query, key, value), size.hidden, qkv_bias),
        _linear("self_attn.o_proj", size.hidden, size.query, bias=output_bias),
        Module("mlp.gate_up_proj", (gate, up), size.hidden, mlp_bias),
        _linear("mlp.down_proj", size.hidden, size.intermediate, bias=mlp_bias),
        _norm("input_layernorm", size.hidden),
        _norm("post_attention_layernorm", size.hidden),
    )


def _qwen2_layer(_: Config, size: Dimensions) -> tuple[Module, ...]:
    return _gated_decoder_layer(size, qkv_bias=True, output_bias=False, mlp_bias=False)


def _llama_layer(config: Config, size: Dimensions) -> tuple[Module, ...]:
    attention_bias = flag(config, "attention_bias")
    return _gated_decoder_layer(
        size,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=flag(config, "mlp_bias"),
    )


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.model_type: family
        for family in (Family("qwen2", _qwen2_layer), Family("llama", _llama_layer))
    }
)
"""Supported families by `model_type`."""


def physical_layout(config: Config) -> Layout:
    """Return all physical tensors of a model from its `config.json` alone.

    Raises:
        InvalidInputError: the family is not supported, the model is quantised, needs its own
            code, or a size is missing or malformed.
    """
    _require_plain(config)
    model_type = config.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InvalidInputError(
            f"model_type {model_type!r} is not supported",
            field="model.config.model_type",
            remedy=f"supported: {', '.join(sorted(FAMILIES))}",
        )
    return family.layout(config)


def _require_plain(config: Config) -> None:
    """Refuse what would make the stored tensors other than the plain weights."""
    if config.get("quantization_config") is not None:
        raise InvalidInputError(
            "the checkpoint is quantised; perturbations are defined on unquantised weights",
            field="model.config.quantization_config",
            remedy="give the bfloat16, float16 or float32 checkpoint it was made from",
        )
    if config.get("auto_map"):
        raise InvalidInputError(
            "the checkpoint needs its own code (auto_map), which is never run",
            field="model.config.auto_map",
            remedy="give a checkpoint of a supported family without remote code",
        )


def _require_divisible(config: Config, key: str, whole: int, part: int) -> None:
    if whole % part:
        raise InvalidInputError(
            f"{key} = {config[key]} does not divide into {part} equal parts",
            field=f"model.config.{key}",
            remedy="correct config.json",
        )
