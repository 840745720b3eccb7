"""Functional maps of a Transformer layer, at the activations of one plain forward (app. A.2).

A family is one `LayerMaps`: which modules of a layer to watch, and which maps to evaluate at what
they were called with. A new one (Gemma 3, OLMo 3) is another such object and a row in `FAMILIES`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import nn

from modnorm.calibration.operator_norm import FunctionalMap
from modnorm.errors import InvalidInputError

_CACHES = frozenset({"past_key_value", "past_key_values", "use_cache", "cache_position"})
"""Options of an attention call that would make it depend on more than its input."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a module was called with in the plain forward."""

    hidden: torch.Tensor
    """Its input activation, shape (1, tokens, hidden)."""
    options: Mapping[str, object]
    """Its other arguments: masks, position embeddings; no caches."""


@dataclass(frozen=True, slots=True)
class Site:
    """A functional map f and the activation x that it is evaluated at."""

    function: FunctionalMap
    at: torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerMaps:
    """The functional maps of a family's layers."""

    metrics: tuple[str, ...]
    """Names of the maps; the position is the offset kappa of the estimator's seed."""
    watched: tuple[str, ...]
    """Modules of a layer whose calls are needed, by their path; the empty path is the layer."""
    sites: Callable[[nn.Module, Mapping[str, Call]], tuple[Site, ...]]
    """Maps of a layer at the watched calls, in the order of `metrics`."""


def layer_maps(model_type: object) -> LayerMaps:
    """Return the functional maps of a family.

    Raises:
        InvalidInputError: the family has none here.
    """
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InvalidInputError(
            f"model_type {model_type!r} cannot be calibrated",
            field="model.config.model_type",
            remedy=f"supported: {', '.join(sorted(FAMILIES))}",
        )
    return family


def capture(decoder: nn.Module, prompt: torch.Tensor, watched: Sequence[nn.Module]) -> list[Call]:
    """Run one plain forward and return what each watched module was called with.

    Args:
        decoder: The model without its head, in evaluation mode.
        prompt: Token ids, int64 (1, tokens), on the decoder's device.
        watched: Modules that the forward calls once each.
    """
    calls: dict[nn.Module, Call] = {}
    with ExitStack() as hooks, torch.no_grad():
        for module in watched:
            hooks.enter_context(_recording(module, calls))
        decoder(input_ids=prompt, use_cache=False)
    return [calls[module] for module in watched]


@contextmanager
def _recording(module: nn.Module, calls: dict[nn.Module, Call]) -> Iterator[None]:
    def record(
        module: nn.Module, positional: tuple[object, ...], named: dict[str, object]
    ) -> None:
        calls[module] = _call(positional, named)

    handle = module.register_forward_pre_hook(record, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _call(positional: tuple[object, ...], named: Mapping[str, object]) -> Call:
    hidden = positional[0] if positional else named["hidden_states"]
    if not isinstance(hidden, torch.Tensor):
        raise TypeError(f"a module was called with {type(hidden).__name__}, not an activation")
    options = {
        name: value
        for name, value in named.items()
        if name != "hidden_states" and name not in _CACHES
    }
    return Call(hidden.detach(), MappingProxyType(options))


def _attention(module: nn.Module, options: Mapping[str, object]) -> FunctionalMap:
    def attend(x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = module(hidden_states=x, **options)[0]
        return output

    return attend


def _residual(branch: FunctionalMap, norm: FunctionalMap) -> FunctionalMap:
    return lambda x: x + branch(norm(x))


def _pre_norm_sites(layer: nn.Module, calls: Mapping[str, Call]) -> tuple[Site, ...]:
    """The seven maps of a pre-norm layer (paper, eq. app_functional_maps, app_metric_order)."""
    input_norm = layer.get_submodule("input_layernorm")
    post_norm = layer.get_submodule("post_attention_layernorm")
    mlp = layer.get_submodule("mlp")
    attention = _attention(layer.get_submodule("self_attn"), calls["self_attn"].options)
    attention_residual = _residual(attention, input_norm)
    mlp_residual = _residual(mlp, post_norm)
    h, r = calls[""].hidden, calls["post_attention_layernorm"].hidden
    return (
        Site(input_norm, h),
        Site(post_norm, r),
        Site(attention, calls["self_attn"].hidden),
        Site(attention_residual, h),
        Site(mlp, calls["mlp"].hidden),
        Site(mlp_residual, r),
        Site(lambda x: mlp_residual(attention_residual(x)), h),
    )


PRE_NORM = LayerMaps(
    metrics=(
        "input_norm",
        "post_attention_norm",
        "attention_module",
        "attention_residual",
        "mlp_module",
        "mlp_residual",
        "block",
    ),
    watched=("", "self_attn", "post_attention_layernorm", "mlp"),
    sites=_pre_norm_sites,
)

FAMILIES: Mapping[str, LayerMaps] = MappingProxyType({"qwen2": PRE_NORM, "llama": PRE_NORM})
"""Families by `model_type`."""
