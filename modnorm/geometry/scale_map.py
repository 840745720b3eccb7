"""The scale map: norm and scale of every physical tensor."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Self

from modnorm.errors import InvalidInputError
from modnorm.files import canonical_json


class Norm(StrEnum):
    """The norm that noise is divided by (paper, table "Leaf-module norms")."""

    MAX_ROW = "max_row"
    """Largest row L2 norm: embeddings."""
    SPECTRAL = "spectral"
    """Largest singular value: linear maps."""
    MAX_ABS = "max_abs"
    """Largest absolute entry: vectors and scalars."""
    FROBENIUS = "frobenius"
    """Root of the sum of squares: other shapes."""
    UNIT = "unit"
    """The constant 1: isotropic noise is not normalised."""


@dataclass(frozen=True, slots=True)
class TensorScale:
    name: str
    shape: tuple[int, ...]
    group: str
    """Mass group: embedding, attention, mlp, head, norm, other."""
    role: str
    """Role inside the layer: qkv, attention_output, gate_up, down, input_norm, ..."""
    layer: int | None
    """Index of the Transformer layer; None outside the layers."""
    norm: Norm
    mass: float
    """m_p, equation app_parameter_mass."""
    base_scale: float | None
    """s_p^base = m_M / m_p; None if the tensor is not perturbed."""
    correction: float
    """rho_p, in [1/2, 2]."""
    scale: float | None
    """s_p = s_p^base * rho_p; None if the tensor is not perturbed."""


@dataclass(frozen=True)
class ScaleMap:
    """Scales of all physical tensors for one method on one model, in canonical order.

    A tensor's perturbation is `R * Z / (scale * norm(Z))` (paper, eq. modular_perturbation); a
    tensor whose scale is None is not perturbed.
    """

    method: str
    model_digest: str
    tensors: tuple[TensorScale, ...]
    rank: int | None = None
    """Rank of the noise of each matrix (`modnorm.perturbation.low_rank`); None for full rank.

    The JSON of a map of full rank has no such field, so older digests stay valid.
    """

    @cached_property
    def active(self) -> tuple[TensorScale, ...]:
        """The perturbed tensors, in the order of a descriptor's coefficients."""
        return tuple(tensor for tensor in self.tensors if tensor.scale is not None)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON; equal digests mean equal scale maps."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the canonical JSON: sorted keys, no blanks, floats that round-trip."""
        content = asdict(self)
        if self.rank is None:
            del content["rank"]
        return canonical_json(content)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return cls._from_mapping(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"not a scale map: {error}", field="scale_map") from error

    @classmethod
    def _from_mapping(cls, data: Mapping[str, object]) -> Self:
        rows = data["tensors"]
        if not isinstance(rows, list):
            raise TypeError("tensors is not a list")
        rank = data.get("rank")
        if rank is not None and (type(rank) is not int or rank < 1):
            raise TypeError("rank is not a positive integer")
        return cls(
            method=str(data["method"]),
            model_digest=str(data["model_digest"]),
            tensors=tuple(
                TensorScale(**{**row, "shape": tuple(row["shape"]), "norm": Norm(row["norm"])})
                for row in rows
            ),
            rank=rank,
        )
