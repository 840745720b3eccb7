"""The key-value cache of continuous greedy decoding: one slot a sequence, no padding columns.

A sequence's keys and values start at column 0 of its slot. Column and position are then the same
number, and sequences of any length share a batch. Slots `0 .. live - 1` are in use. When a
sequence finishes, the last live one moves into its slot; a waiting one joins at the end. Nothing
is concatenated or allocated again.
"""

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig
from transformers.cache_utils import Cache

ATTENTION = "modnorm_slots"
"""Name under which transformers finds `slot_attention`."""


class Write(Protocol):
    """Stores the keys and values of one forward pass and selects those it attends to."""

    def __call__(self, slots: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Store `states` in `slots`; return the states that the queries attend to."""


@dataclass(frozen=True)
class PrefillWrite:
    """Writes prompts, padded on the right, to consecutive slots.

    The slots already hold the first `start` tokens, a prefix that all prompts share. Padding is
    stored as zeros. It is always masked, but a value that is not finite would still spoil the
    row, since `0 * nan` is `nan`.
    """

    first: int
    """First slot."""
    real: torch.Tensor
    """Boolean [rows, columns]: False for padding."""
    start: int = 0
    """Column of the first token."""

    def __call__(self, slots: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Store [rows, heads, columns, head size]; each prompt attends to itself only."""
        rows, _, columns, _ = states.shape
        target = slots[self.first : self.first + rows, :, : self.start + columns]
        target[:, :, self.start :] = states.masked_fill(~self.real[:, None, :, None], 0)
        return target if self.start else states


@dataclass(frozen=True)
class StepWrite:
    """Writes one token to each live slot, at the slot's own column."""

    rows: torch.Tensor
    """The live slots: 0, 1, ... as int64 [live]."""
    positions: torch.Tensor
    """Column to write to in each, int64 [live]."""
    columns: int
    """Columns in use after the write."""

    def __call__(self, slots: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Store [live, heads, 1, head size]; return a view of all columns in use."""
        slots[self.rows, :, self.positions] = states[:, :, 0]
        return slots[: self.rows.shape[0], :, : self.columns]


class SlotCache(Cache):
    """Keys and values of all layers, allocated once."""

    def __init__(
        self,
        config: PreTrainedConfig,
        *,
        rows: int,
        columns: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__(layers=[])
        shape = (rows, config.num_key_value_heads, columns, head_size(config))
        self._slots = [
            (
                torch.zeros(shape, dtype=dtype, device=device),
                torch.zeros(shape, dtype=dtype, device=device),
            )
            for _ in range(config.num_hidden_layers)
        ]
        self._write: Write | None = None

    def prepare(self, write: Write) -> Self:
        """Set the write of the next forward pass."""
        self._write = write
        return self

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store one layer's keys and values; called by the model's attention."""
        keys, values = self._slots[layer_idx]
        if self._write is None:
            raise RuntimeError("the cache is used before it is prepared")
        return self._write(keys, key_states), self._write(values, value_states)

    def share(self, columns: int) -> None:
        """Copy the first columns of the first slot to all slots."""
        for keys, values in self._slots:
            keys[1:, :, :columns] = keys[:1, :, :columns]
            values[1:, :, :columns] = values[:1, :, :columns]

    def move(self, source: list[int], target: list[int], columns: int) -> None:
        """Copy the first columns of some slots over others."""
        for keys, values in self._slots:
            keys[target, :, :columns] = keys[source, :, :columns]
            values[target, :, :columns] = values[source, :, :columns]


def head_size(config: PreTrainedConfig) -> int:
    """Return the size of one attention head."""
    explicit = getattr(config, "head_dim", None)
    return int(explicit or config.hidden_size // config.num_attention_heads)


def bytes_per_token(config: PreTrainedConfig, dtype: torch.dtype) -> int:
    """Return the cache bytes that one token takes in all layers."""
    vectors: int = 2 * config.num_hidden_layers * config.num_key_value_heads
    return vectors * head_size(config) * dtype.itemsize


def slot_attention(
    _: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    **__: object,
) -> tuple[torch.Tensor, None]:
    """Grouped-query attention by torch's fused kernels.

    Args:
        query: [rows, heads, tokens, head size].
        key: [rows, key-value heads, columns, head size].
        value: As `key`.
        attention_mask: Additive [rows or 1, 1, tokens, columns]; None if tokens are the
            columns and attend causally.
        scaling: Factor of the scores.

    Returns:
        [rows, tokens, heads, head size], and no attention weights.
    """
    on_cpu = query.device.type == "cpu"
    if attention_mask is not None and query.shape[2] == 1:
        attend = products_by_group if on_cpu else masked_by_group
        output = attend(query, key, value, attention_mask, scaling)
    elif attention_mask is not None and not on_cpu:
        output = masked_by_head(query, key, value, attention_mask, scaling)
    else:
        output = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attention_mask,
            is_causal=attention_mask is None,
            scale=scaling,
            enable_gqa=True,
        )
    return output.transpose(1, 2), None


def masked_by_group(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Return the attention of one token per row; the heads of a group share their keys.

    CUDA's fused kernels take a mask or grouped heads, not both.

    Returns:
        [rows, heads, 1, head size].
    """
    grouped = _by_group(query, key)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(query.shape)


def products_by_group(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Return the same as `masked_by_group`, by two matrix products and a softmax.

    The scores of one token a row are small, so the CPU's fused kernel saves no memory traffic and
    takes up to 1.4 times as long.

    Returns:
        [rows, heads, 1, head size].
    """
    scores = (_by_group(query, key) * scaling) @ key.transpose(2, 3) + mask
    return (scores.softmax(-1) @ value).reshape(query.shape)


def _by_group(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """View the heads that share keys as queries: [rows, key-value heads, heads of one, size]."""
    return query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])


def masked_by_head(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float,
) -> torch.Tensor:
    """Return the attention of whole prompts; keys are repeated for each head of a group.

    Returns:
        [rows, heads, tokens, head size].
    """
    group = query.shape[1] // key.shape[1]
    return scaled_dot_product_attention(
        query,
        key.repeat_interleave(group, dim=1),
        value.repeat_interleave(group, dim=1),
        attn_mask=mask.expand(query.shape[0], query.shape[1], -1, -1),
        scale=scaling,
    )


AttentionInterface.register(ATTENTION, slot_attention)
