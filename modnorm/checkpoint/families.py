"""Model families: how `config.json` determines the physical tensors (docs/families.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Literal, Self

from modnorm.checkpoint.checkpoint_files import Config, flag, optional_positive, positive
from modnorm.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Part:
    """A checkpoint tensor inside a physical tensor: whole rows, in order."""

    name: str
    """Name in the checkpoint, for example `model.layers.0.self_attn.q_proj.weight`."""
    rows: int


@dataclass(frozen=True)
class PhysicalTensor:
    """One parameter of the inference engine: a fused projection, a tied embedding once, a norm."""

    name: str
    """Name in the engine, for example `model.layers.0.self_attn.qkv_proj.weight`."""
    shape: tuple[int, ...]
    """Canonical shape: unsharded, without an engine's padding of the vocabulary."""
    parts: tuple[Part, ...]
    """Its checkpoint tensors, stacked along the first dimension."""

    @cached_property
    def numel(self) -> int:
        """Number of elements; element `e` is at row-major position `e`."""
        return prod(self.shape)


Layout = tuple[PhysicalTensor, ...]
"""All physical tensors of a model in canonical order, that of the engine's parameters."""


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
    head: int
    vocabulary: int
    tied: bool

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the sizes; `head_dim` and `num_key_value_heads` have their usual defaults."""
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
            head=head,
            vocabulary=positive(config, "vocab_size"),
            tied=flag(config, "tie_word_embeddings"),
        )


@dataclass(frozen=True, slots=True)
class Module:
    """A leaf module of a decoder layer: a (fused) projection or a norm."""

    name: str
    """Name inside the layer in the engine: `self_attn.qkv_proj`."""
    parts: tuple[Part, ...]
    """The fused modules of the checkpoint, with their output rows."""
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


_ATTENTION_BIAS, _MLP_BIAS = "attention_bias", "mlp_bias"


@dataclass(frozen=True, slots=True)
class Family:
    """One `model_type`."""

    model_type: str
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    """Norms of the residual stream in a layer."""
    query_norms: Literal["heads", "whole"] | None = None
    """Whether each head of query and key has a norm, or query and key as a whole."""
    query_bias: bool = False
    """Whether query, key and value always have biases."""
    biases: frozenset[str] = frozenset()
    """Keys of `config.json` that add biases; other families ignore them."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Defaults of keys that public checkpoints omit from `config.json`."""
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Prefixes of stored names in a multimodal model, and the decoder's own prefixes."""
    ignored: tuple[str, ...] = ()
    """Prefixes of the stored names of other parts, such as vision towers."""
    decoder_prefix: str = "model."
    """Prefix of the decoder's modules in transformers' class of the whole model."""

    def layout(self, config: Config) -> Layout:
        """Return the physical tensors, in the order of the engine's parameters."""
        size = Dimensions.from_config(config)
        layer = self._layer(config, size)
        embedding = linear("embed_tokens", size.vocabulary, size.hidden)
        head = () if size.tied else (linear("lm_head", size.vocabulary, size.hidden),)
        return (
            *embedding.tensors("model."),
            *(
                tensor
                for index in range(size.layers)
                for module in layer
                for tensor in module.tensors(f"model.layers.{index}.")
            ),
            *norm("norm", size.hidden).tensors("model."),
            *(tensor for module in head for tensor in module.tensors("")),
        )

    def _layer(self, config: Config, size: Dimensions) -> tuple[Module, ...]:
        """Return the modules of one decoder layer, in the engine's order."""
        attention_bias, mlp_bias = (
            key in self.biases and flag(config, key) for key in (_ATTENTION_BIAS, _MLP_BIAS)
        )
        query_key_value = (
            Part("self_attn.q_proj", size.query),
            Part("self_attn.k_proj", size.key_value),
            Part("self_attn.v_proj", size.key_value),
        )
        gate_up = tuple(Part(f"mlp.{name}_proj", size.intermediate) for name in ("gate", "up"))
        whole = norm("self_attn.k_norm", size.key_value), norm("self_attn.q_norm", size.query)
        heads = norm("self_attn.q_norm", size.head), norm("self_attn.k_norm", size.head)
        has_bias = self.query_bias or attention_bias
        return (
            Module("self_attn.qkv_proj", query_key_value, size.hidden, has_bias),
            *(whole if self.query_norms == "whole" else ()),
            linear("self_attn.o_proj", size.hidden, size.query, bias=attention_bias),
            *(heads if self.query_norms == "heads" else ()),
            Module("mlp.gate_up_proj", gate_up, size.hidden, mlp_bias),
            linear("mlp.down_proj", size.hidden, size.intermediate, bias=mlp_bias),
            *(norm(name, size.hidden) for name in self.norms),
        )

    def decoder_name(self, stored: str) -> str | None:
        """Return a stored tensor's name in the decoder; None if it belongs to another part."""
        if stored.startswith(self.ignored):
            return None
        for prefix, replacement in self.prefixes.items():
            if stored.startswith(prefix):
                return replacement + stored.removeprefix(prefix)
        return stored


def linear(name: str, rows: int, inputs: int, *, bias: bool = False) -> Module:
    """Return a projection that checkpoint and engine store alike."""
    return Module(name, (Part(name, rows),), inputs, bias)


def norm(name: str, size: int) -> Module:
    """Return a norm with a weight of `size` entries."""
    return Module(name, (Part(name, size),))


def _require_divisible(config: Config, key: str, whole: int, part: int) -> None:
    if whole % part:
        raise InvalidInputError(
            f"{key} = {config[key]} does not divide into {part} equal parts",
            field=f"model.config.{key}",
        )


_OF_ATTENTION = frozenset({_ATTENTION_BIAS})
_GEMMA3_NORMS = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
_GEMMA3_DEFAULTS: Mapping[str, object] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": True,
}
"""Keys that the `config.json` of gemma-3-4b-it omits."""
_PREFIXES: Mapping[str, str] = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_VISION = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)

_OLMO_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")
_GEMMA3 = Family(
    "gemma3_text",
    norms=("input_layernorm", "post_attention_layernorm", *_GEMMA3_NORMS),
    query_norms="heads",
    biases=_OF_ATTENTION,
    defaults=_GEMMA3_DEFAULTS,
)
FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", biases=frozenset({_ATTENTION_BIAS, _MLP_BIAS})),
        Family("mistral"),
        Family("olmo2", norms=_OLMO_NORMS, query_norms="whole", biases=_OF_ATTENTION),
        Family("olmo3", norms=_OLMO_NORMS, query_norms="whole", biases=_OF_ATTENTION),
        Family("qwen2", query_bias=True),
        Family("qwen3", query_norms="heads", biases=_OF_ATTENTION, defaults={"head_dim": 128}),
        _GEMMA3,
        # The same decoder, and a vision tower that is neither loaded nor perturbed.
        replace(
            _GEMMA3,
            model_type="gemma3",
            prefixes=_PREFIXES,
            ignored=_VISION,
            decoder_prefix="model.language_model.",
        ),
    )
}


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
            "text_config is not a JSON object", field="model.config.text_config"
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
