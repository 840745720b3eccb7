"""The protocol of noise schemes, and blocks of tensors."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Protocol

from modnorm.errors import InvalidInputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of a canonical physical tensor; both ranges are half-open."""

    rows: tuple[int, int]
    """Range along the first dimension."""
    columns: tuple[int, int] | None = None
    """Range along the second dimension of a matrix; None for whole rows."""

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> "Block":
        """Return the block of a whole tensor; a scalar has one row."""
        return cls(rows=(0, shape[0] if shape else 1))

    def shape_in(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the block inside a tensor of `shape`.

        Raises:
            InvalidInputError: the block is not inside such a tensor.
        """
        rows = shape[0] if shape else 1
        columns = self.column_range(shape)
        inside = _within(self.rows, rows) and _within(columns, prod(shape[1:]))
        if not inside or (self.columns is not None and len(shape) != 2):
            raise InvalidInputError(f"{self} is not inside a tensor of shape {shape}")
        if self.columns is not None:
            return self.rows[1] - self.rows[0], columns[1] - columns[0]
        return (self.rows[1] - self.rows[0], *shape[1:]) if shape else ()

    def column_range(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return the range inside a row; a row is all dimensions after the first."""
        return self.columns if self.columns is not None else (0, prod(shape[1:]))

    def of(self, tensor: "torch.Tensor") -> "torch.Tensor":
        """Return the view of the block in a whole canonical tensor."""
        if not tensor.ndim:
            return tensor
        view = tensor[slice(*self.rows)]
        return view if self.columns is None else view[:, slice(*self.columns)]


def _within(bounds: tuple[int, int], length: int) -> bool:
    return 0 <= bounds[0] <= bounds[1] <= length


class NoiseScheme(Protocol):
    """A named, versioned source of standard Gaussian noise: a pure function of its arguments."""

    @property
    def name(self) -> str:
        """Name and version, recorded in every descriptor."""

    @property
    def portable(self) -> bool:
        """Whether element `e` is equal on all devices and can be generated alone.

        Another scheme generates the whole tensor for any block, and its values depend on the
        device.
        """

    def sample(  # noqa: PLR0913 - all of these identify a tensor of a candidate
        self,
        seed: int,
        tensor: str,
        shape: tuple[int, ...],
        *,
        dtype: "torch.dtype",
        device: "torch.device",
        block: Block | None = None,
    ) -> "torch.Tensor":
        """Return the noise of one physical tensor, or of a block of it.

        Args:
            seed: Seed of the candidate.
            tensor: Name of the physical tensor.
            shape: Canonical, unsharded shape of the whole tensor.
            dtype: Weight dtype; a scheme may draw in it.
            device: Device that generates the noise.
            block: Block to return; by default the whole tensor.

        Returns:
            fp32 tensor of the block's shape, new memory.

        Raises:
            InvalidInputError: the block is not inside the tensor.
        """
