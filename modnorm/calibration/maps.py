"""Functional maps of a Transformer layer, at the activations of one plain forward (app. A.2).

A layer is two branches on a residual stream, attention and MLP, each with a norm before it, after
it, or both. A family is one `LayerMaps`: its norms and the order of its maps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from modnorm.errors import InvalidInputError

FunctionalMap = Callable[[torch.Tensor], torch.Tensor]

FLOOR = 1e-12
"""Lower bound of divisors and estimates."""


def operator_norm(
    function: FunctionalMap, at: torch.Tensor, *, seed: int, iterations: int = 3
) -> torch.Tensor:
    """Estimate the largest local amplification of a unit Euclidean perturbation.

    JVP and VJP are computed in the dtype of the activation, norms in float32 or wider. Apart from
    rounding, the estimate never exceeds the true norm and grows with the iterations. It is 0-d, at
    least 1e-12, and not finite if the map is not. Nothing waits for the device.
    """
    push_forward, pull_back = _products(function, at)
    direction = start_vector(at, seed)
    has_vanished = torch.zeros((), dtype=torch.bool, device=at.device)
    for _ in range(iterations):
        for product in (push_forward, pull_back):
            image = product(direction).detach()
            length = _length(image)
            has_vanished |= length <= FLOOR
            direction = _unit(image, length.clamp_min(FLOOR))
    last = _length(push_forward(direction)).clamp_min(FLOOR)
    return torch.where(has_vanished, torch.full_like(last, FLOOR), last)


def start_vector(at: torch.Tensor, seed: int) -> torch.Tensor:
    """Return a Gaussian vector of unit length, drawn in the dtype and on the device of `at`."""
    generator = torch.Generator(device=at.device).manual_seed(seed)
    vector = torch.randn(at.shape, generator=generator, dtype=at.dtype, device=at.device)
    return vector / _length(vector).clamp_min(FLOOR).to(at.dtype)


def _products(function: FunctionalMap, at: torch.Tensor) -> tuple[FunctionalMap, FunctionalMap]:
    """Return the products of the Jacobian and of its transpose with a vector.

    The map runs once. The product with the Jacobian is the derivative of the transposed product,
    which is linear. Torch's forward mode would run the map again, each operation in Python.
    """
    point = at.detach().requires_grad_()
    image = function(point)
    dummy = torch.zeros_like(image, requires_grad=True)
    pulled = _gradient(image, point, dummy)

    def push_forward(vector: torch.Tensor) -> torch.Tensor:
        return _gradient(pulled, dummy, vector)

    def pull_back(vector: torch.Tensor) -> torch.Tensor:
        return _gradient(image, point, vector)

    return push_forward, pull_back


def _gradient(image: torch.Tensor, at: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the product of a transposed Jacobian with a vector.

    Torch has other kernels for products that keep no graph; profiles would round differently.
    """
    return torch.autograd.grad(image, at, vector, create_graph=True, materialize_grads=True)[0]


def _unit(vector: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Divide a vector by its length, in its dtype unless the length overflows it (float16)."""
    if vector.dtype is not torch.float16:
        return vector / length.to(vector.dtype)
    divisor = length.to(vector.dtype)
    narrow, wide = vector / divisor, (vector.to(length.dtype) / length).to(vector.dtype)
    return torch.where(divisor.isfinite(), narrow, wide)


def _length(vector: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm over all entries, 0-d, in float32 or wider."""
    wide = vector.detach().to(torch.promote_types(vector.dtype, torch.float32))
    length: torch.Tensor = torch.linalg.vector_norm(wide)
    return length


_CACHES = frozenset({"past_key_value", "past_key_values", "use_cache", "cache_position"})
"""Cache options of an attention call; with them the output would depend on earlier calls."""


@dataclass(frozen=True, slots=True)
class ModuleCall:
    """The arguments of a module in the plain forward."""

    hidden: torch.Tensor
    """Input activation, shape (1, tokens, hidden)."""
    options: Mapping[str, object]
    """Other arguments: masks, position embeddings; no caches."""


@dataclass(frozen=True, slots=True)
class Site:
    """A functional map f and the activation x at which it is evaluated."""

    function: FunctionalMap
    at: torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerMaps:
    """The functional maps of a family's layers."""

    metrics: tuple[str, ...]
    """Names of the maps; a map's position is the offset kappa of the estimator's seed."""
    norms: Mapping[str, str]
    """Paths inside the layer of the norms that are maps, by the map's name."""
    normed_twice: bool = False
    """Whether the attention and MLP maps apply their input norm to the already normed input."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Paths of the modules whose calls are captured; the empty path is the layer."""
        return ("", "self_attn", "mlp", *self.norms.values())

    def sites(self, layer: nn.Module, calls: Mapping[str, ModuleCall]) -> tuple[Site, ...]:
        """Return the maps of a layer at the captured calls, in the order of `metrics`."""
        norm = {name: layer.get_submodule(path) for name, path in self.norms.items()}
        before_mlp = next((name for name in _BEFORE_MLP if name in norm), None)
        attention = _attention(layer.get_submodule("self_attn"), calls["self_attn"].options)
        mlp: FunctionalMap = layer.get_submodule("mlp")
        normed_attention = _chain(norm.get("input_norm"), attention)
        normed_mlp = _chain(norm.get(before_mlp or ""), mlp)
        h = calls[self.norms.get("input_norm", "")].hidden
        r = calls[self.norms[before_mlp] if before_mlp else "mlp"].hidden
        attention_residual = _residual(normed_attention, norm.get("attention_output_norm"))
        mlp_residual = _residual(normed_mlp, norm.get("mlp_output_norm"))
        sites = {
            **{name: Site(norm[name], calls[path].hidden) for name, path in self.norms.items()},
            "attention_module": Site(
                normed_attention if self.normed_twice else attention, calls["self_attn"].hidden
            ),
            "attention_residual": Site(attention_residual, h),
            "mlp_module": Site(normed_mlp if self.normed_twice else mlp, calls["mlp"].hidden),
            "mlp_residual": Site(mlp_residual, r),
            "block": Site(_chain(attention_residual, mlp_residual), h),
        }
        return tuple(sites[metric] for metric in self.metrics)


def layer_maps(model_type: object, maps: str = "default") -> LayerMaps:
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise InvalidInputError(
            f"model_type {model_type!r} cannot be calibrated",
            field="model.config.model_type",
            remedy=f"supported: {', '.join(sorted(FAMILIES))}",
        )
    return PUBLISHED.get(str(model_type), family) if maps == "published" else family


def capture(
    decoder: nn.Module, prompt: torch.Tensor, watched: Sequence[nn.Module]
) -> list[ModuleCall]:
    """Run one plain forward and return the call of each watched module."""
    calls: dict[nn.Module, ModuleCall] = {}

    def record(
        module: nn.Module, positional: tuple[object, ...], named: dict[str, object]
    ) -> None:
        hidden = positional[0] if positional else named["hidden_states"]
        if not isinstance(hidden, torch.Tensor):
            raise TypeError(f"a module was called with {type(hidden).__name__}, not an activation")
        options = {
            name: value
            for name, value in named.items()
            if name != "hidden_states" and name not in _CACHES
        }
        calls[module] = ModuleCall(hidden.detach(), options)

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in watched]
    try:
        with torch.no_grad():
            decoder(input_ids=prompt, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [calls[module] for module in watched]


def _attention(module: nn.Module, options: Mapping[str, object]) -> FunctionalMap:
    def attend(x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = module(hidden_states=x, **options)[0]
        return output

    return attend


def _chain(*maps: FunctionalMap | None) -> FunctionalMap:
    """Compose maps, the first one first; None is the identity."""
    present = [function for function in maps if function is not None]

    def chained(x: torch.Tensor) -> torch.Tensor:
        for function in present:
            x = function(x)
        return x

    return chained


def _residual(branch: FunctionalMap, output_norm: FunctionalMap | None) -> FunctionalMap:
    normed = _chain(branch, output_norm)
    return lambda x: x + normed(x)


_BEFORE_MLP = ("post_attention_norm", "pre_feedforward_norm")
_HEAD_NORMS: Mapping[str, str] = {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
_OUTPUT_NORMS: Mapping[str, str] = {
    "attention_output_norm": "post_attention_layernorm",
    "mlp_output_norm": "post_feedforward_layernorm",
}

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
    norms={"input_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"},
)
"""Seven maps (paper, eq. app_functional_maps, app_metric_order)."""
QWEN3 = LayerMaps(
    metrics=(*PRE_NORM.metrics, "q_norm", "k_norm"), norms={**PRE_NORM.norms, **_HEAD_NORMS}
)
"""The maps of Qwen2, with equal seeds, then the norms of query and key."""
OLMO = LayerMaps(
    metrics=(
        "q_norm",
        "k_norm",
        "attention_module",
        "attention_output_norm",
        "attention_residual",
        "mlp_module",
        "mlp_output_norm",
        "mlp_residual",
        "block",
    ),
    norms={**_HEAD_NORMS, **_OUTPUT_NORMS},
)
GEMMA3 = LayerMaps(
    metrics=(
        "input_norm",
        "q_norm",
        "k_norm",
        "attention_module",
        "attention_output_norm",
        "attention_residual",
        "pre_feedforward_norm",
        "mlp_module",
        "mlp_output_norm",
        "mlp_residual",
        "block",
    ),
    norms={
        "input_norm": "input_layernorm",
        **_HEAD_NORMS,
        **_OUTPUT_NORMS,
        "pre_feedforward_norm": "pre_feedforward_layernorm",
    },
)
_GEMMA3_PUBLISHED = replace(GEMMA3, normed_twice=True)

FAMILIES: Mapping[str, LayerMaps] = {
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "llama": PRE_NORM,
    "mistral": PRE_NORM,
    "olmo2": OLMO,
    "olmo3": OLMO,
    "qwen2": PRE_NORM,
    "qwen3": QWEN3,
}
PUBLISHED: Mapping[str, LayerMaps] = {
    "gemma3": _GEMMA3_PUBLISHED,
    "gemma3_text": _GEMMA3_PUBLISHED,
}
"""Families for which the published code evaluates other maps."""
