"""The role of each physical tensor: its mass group, its place in the layer, its module.

The tables cover the pre-norm families (Qwen2, Llama) and those with norms on queries, keys and
outputs (OLMo, Gemma 3). A tensor that they do not name is an error.
"""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from modnorm.checkpoint.families import Layout, PhysicalTensor
from modnorm.errors import InvalidInputError
from modnorm.geometry.scale_map import Norm
from modnorm.spec import Masses


@dataclass(frozen=True, slots=True)
class TensorRole:
    """The place of one physical tensor in the module tree (paper, sec. 3.1)."""

    group: str
    """Mass group: embedding, attention, mlp, head, norm."""
    role: str
    """Role of the raw-correction table: input_norm, qkv, attention_output, gate_up, down, ..."""
    layer: int | None
    """Index of the Transformer layer; None outside the layers."""
    module: str
    """Logical module: the name without `.weight` or `.bias`."""
    multiplicity: int
    """w_u: 3 for a fused QKV, 2 for a fused gate-up, otherwise 1."""
    norm: Norm


_IN_LAYER: Mapping[str, tuple[str, str, int]] = {
    "self_attn.qkv_proj": ("attention", "qkv", 3),
    "self_attn.o_proj": ("attention", "attention_output", 1),
    "self_attn.q_norm": ("norm", "q_norm", 1),
    "self_attn.k_norm": ("norm", "k_norm", 1),
    "mlp.gate_up_proj": ("mlp", "gate_up", 2),
    "mlp.down_proj": ("mlp", "down", 1),
    "input_layernorm": ("norm", "input_norm", 1),
    "post_attention_layernorm": ("norm", "post_attention_norm", 1),
    "pre_feedforward_layernorm": ("norm", "pre_feedforward_norm", 1),
    "post_feedforward_layernorm": ("norm", "mlp_output_norm", 1),
}
"""Module inside a layer -> group, role, multiplicity."""
_OUTSIDE: Mapping[str, tuple[str, str, int]] = {
    "model.embed_tokens": ("embedding", "embedding", 1),
    "model.norm": ("norm", "final_norm", 1),
    "lm_head": ("head", "output_head", 1),
}
_NAME = re.compile(r"(?P<module>.+)\.(?:weight|bias)")
_LAYER = re.compile(r"model\.layers\.(?P<index>\d+)\.(?P<inner>.+)")


def classify(layout: Layout) -> tuple[TensorRole, ...]:
    """Return the role of every physical tensor, in the order of the layout."""
    names = frozenset(tensor.name for tensor in layout)
    return tuple(_role(tensor, names) for tensor in layout)


def _role(tensor: PhysicalTensor, names: frozenset[str]) -> TensorRole:
    named = _NAME.fullmatch(tensor.name)
    module = named["module"] if named else tensor.name
    layered = _LAYER.fullmatch(module)
    entry = _IN_LAYER.get(layered["inner"]) if layered else _OUTSIDE.get(module)
    if entry is None or named is None:
        raise InvalidInputError(
            f"tensor {tensor.name} has no known role, so it has no mass and no norm",
            field="model.name",
        )
    group, role, multiplicity = entry
    layer = int(layered["index"]) if layered else None
    # A layer that norms the outputs of its branches, instead of their inputs.
    norms_outputs = f"model.layers.{layer}.post_feedforward_layernorm.weight" in names
    if role == "post_attention_norm" and norms_outputs:
        role = "attention_output_norm"
    return TensorRole(group, role, layer, module, multiplicity, _norm(group, tensor.shape))


def _norm(group: str, shape: tuple[int, ...]) -> Norm:
    """Return the natural norm (paper, table "Leaf-module norms")."""
    match len(shape):
        case 0 | 1:
            return Norm.MAX_ABS
        case 2:
            return Norm.MAX_ROW if group == "embedding" else Norm.SPECTRAL
        case _:
            return Norm.FROBENIUS


_LAYERED = frozenset({"attention", "mlp"})
"""Groups that split their mass by layer first; other groups are one instance."""


def tensor_masses(roles: Sequence[TensorRole], totals: Masses) -> tuple[float, ...]:
    """Return m_p of every tensor (paper, eq. app_parameter_mass).

    m_p = M_g / L_g * w_u / sum_v w_v * 1 / n_u
    """
    group_mass: dict[str, float] = totals.model_dump()
    instances: dict[str, set[Hashable]] = defaultdict(set)
    weights: dict[Hashable, dict[str, int]] = defaultdict(dict)
    tensors: dict[str, int] = defaultdict(int)
    for role in roles:
        instances[role.group].add(_instance(role))
        weights[_instance(role)][role.module] = role.multiplicity
        tensors[role.module] += 1

    def mass(role: TensorRole) -> float:
        siblings = sum(weights[_instance(role)].values())
        share = role.multiplicity / siblings / tensors[role.module]
        return group_mass[role.group] / len(instances[role.group]) * share

    return tuple(mass(role) for role in roles)


def base_scales(masses: Sequence[float]) -> tuple[float | None, ...]:
    """Return s_p^base = m_M / m_p (paper, eq. app_base_scale); None for tensors without mass."""
    total = math.fsum(masses)
    scales = tuple(total / mass if mass > 0 else None for mass in masses)
    if any(scale is not None and math.isinf(scale) for scale in scales):
        raise InvalidInputError(
            "the masses differ too much",
            field="method.masses",
            remedy="use masses of comparable size, or 0 to leave a group unperturbed",
        )
    return scales


def _instance(role: TensorRole) -> Hashable:
    """Return the instance within which a tensor shares its group's mass."""
    return (role.group, role.layer if role.group in _LAYERED else None)
