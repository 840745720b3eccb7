"""The common parts of decoders, and the definition of a family.

A `Family` lists the modules of one decoder layer, in the order in which the inference engine
registers their parameters, and the defaults of its `config.json`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    head: int
    """Size of one attention head."""
    vocabulary: int
    tied: bool
    """Whether the token embedding is also the output head."""

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


@dataclass(frozen=True, slots=True)
class Family:
    """One `model_type`."""

    model_type: str
    layer: Callable[[Config, Dimensions], tuple[Module, ...]]
    """Modules of one decoder layer, in the engine's order."""
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
        layer = self.layer(config, size)
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


def query_key_value(size: Dimensions, *, bias: bool = False) -> Module:
    """Return the fused query, key and value projections."""
    parts = (
        Part("self_attn.q_proj", size.query),
        Part("self_attn.k_proj", size.key_value),
        Part("self_attn.v_proj", size.key_value),
    )
    return Module("self_attn.qkv_proj", parts, size.hidden, bias)


def attention_output(size: Dimensions, *, bias: bool = False) -> Module:
    """Return the projection from the heads back to the residual stream."""
    return linear("self_attn.o_proj", size.hidden, size.query, bias=bias)


def gated_mlp(size: Dimensions, *, bias: bool = False) -> tuple[Module, Module]:
    """Return the fused gate and up projections, and the down projection."""
    gate, up = Part("mlp.gate_proj", size.intermediate), Part("mlp.up_proj", size.intermediate)
    return (
        Module("mlp.gate_up_proj", (gate, up), size.hidden, bias),
        linear("mlp.down_proj", size.hidden, size.intermediate, bias=bias),
    )


def _require_divisible(config: Config, key: str, whole: int, part: int) -> None:
    if whole % part:
        raise InvalidInputError(
            f"{key} = {config[key]} does not divide into {part} equal parts",
            field=f"model.config.{key}",
            remedy="correct config.json",
        )
