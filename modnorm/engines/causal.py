"""Next tokens of a transformers causal language model, over a slot cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, cast

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache

from modnorm.checkpoint.checkpoint_files import FULL, SLIDING, check_attention
from modnorm.errors import CandidateError, IncompatibleError

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
    """Grouped-query attention by torch's fused kernels; without a mask tokens attend causally.

    Query [rows, heads, tokens, head size]; key, value [rows, key-value heads, columns, head size];
    additive mask [rows or 1, 1, tokens, columns]. The result is [rows, tokens, heads, head size].
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
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return the attention of one token per row, [rows, heads, 1, head size].

    The heads of a group share their keys: CUDA's fused kernels take a mask or grouped heads.
    """
    grouped = _by_group(query, key)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(query.shape)


def products_by_group(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return the same as `masked_by_group`, by two matrix products and a softmax.

    The CPU's fused kernel saves no memory traffic here and takes up to 1.4 times as long.
    """
    scores = (_by_group(query, key) * scaling) @ key.transpose(2, 3) + mask
    return (scores.softmax(-1) @ value).reshape(query.shape)


def _by_group(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """View the heads that share keys as queries: [rows, key-value heads, heads of one, size]."""
    return query.reshape(query.shape[0], key.shape[1], -1, query.shape[3])


def masked_by_head(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return the attention of whole prompts with repeated keys, [rows, heads, tokens, size]."""
    group = query.shape[1] // key.shape[1]
    return scaled_dot_product_attention(
        query,
        key.repeat_interleave(group, dim=1),
        value.repeat_interleave(group, dim=1),
        attn_mask=mask.expand(query.shape[0], query.shape[1], -1, -1),
        scale=scaling,
    )


AttentionInterface.register(ATTENTION, slot_attention)


Masks = torch.Tensor | None | dict[str, torch.Tensor | None]
"""Additive masks: one for all layers, or one for each layer type. None means causal."""

_MASK_BY_LAYER_TYPE = frozenset({"gemma3_text", "olmo3", "qwen2", "qwen3"})
"""Model types whose transformers code takes a mask for each layer type."""
_WINDOW_IN_ALL_LAYERS = frozenset({"mistral"})
"""Model types whose `sliding_window` holds for all layers, which take one mask."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Random numbers that choose the next tokens."""

    temperature: float
    uniforms: Sequence[float]
    """One number for each row, at least 0 and below 1."""
    top_p: float = 1.0
    """Tokens are drawn from the likeliest whose probabilities add up to this; 1 for all."""


class CausalModel:
    """A decoder that returns the next token of every row, greedy or sampled."""

    def __init__(self, model: PreTrainedModel) -> None:
        _require_plain_attention(model.config)
        self._window = _window(model.config)
        self._one_mask = model.config.model_type in _WINDOW_IN_ALL_LAYERS
        self.config: PreTrainedConfig = model.config
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._decoder: torch.nn.Module = model.base_model
        self._head = cast("torch.nn.Module", model.get_output_embeddings())

    @torch.inference_mode()
    def prefill(  # noqa: PLR0913 - positions and draws by keyword
        self,
        prompts: torch.Tensor,
        lengths: torch.Tensor,
        cache: SlotCache,
        *,
        first: int,
        start: int = 0,
        draws: Draws | None = None,
    ) -> list[int]:
        """Read prompts into consecutive slots; return the first token of each completion.

        `prompts` are token ids from `start` on, int64 [rows, columns], padded on the right;
        `lengths` are without padding, int64 [rows]. The slots hold the tokens before `start`.
        """
        columns = torch.arange(prompts.shape[1], device=self.device)
        write = PrefillWrite(first, columns < lengths[:, None], start)
        positions = columns + start
        masks = self._prompt_masks(positions, start + prompts.shape[1])
        hidden = self._hidden(prompts, positions[None], masks, cache.prepare(write))
        rows = torch.arange(len(prompts), device=self.device)
        return self._next(hidden[rows, lengths - 1], draws)

    @torch.inference_mode()
    def step(
        self, tokens: list[int], positions: list[int], cache: SlotCache, draws: Draws | None = None
    ) -> list[int]:
        """Append one token to every live sequence."""
        ids, columns = torch.tensor([tokens, positions], device=self.device).unbind()
        rows = torch.arange(len(tokens), device=self.device)
        write = StepWrite(rows, columns, max(positions) + 1)
        masks = self._step_masks(columns, write.columns)
        hidden = self._hidden(ids[:, None], columns[:, None], masks, cache.prepare(write))
        return self._next(hidden[:, 0], draws)

    def _prompt_masks(self, positions: torch.Tensor, columns: int) -> Masks:
        """Return the masks of a prompt's tokens, [1, 1, positions, columns]."""
        whole = len(positions) == columns
        full = None if whole else self._mask(positions, columns, None)[None, None]
        if self._window is None:
            return full
        if columns <= self._window:
            return self._by_kind(full, full)
        return self._by_kind(full, self._mask(positions, columns, self._window)[None, None])

    def _step_masks(self, positions: torch.Tensor, columns: int) -> Masks:
        """Return the masks of the last token of each row, [rows, 1, 1, columns]."""
        full = self._mask(positions, columns, None)[:, None, None]
        if self._window is None:
            return full
        return self._by_kind(full, self._mask(positions, columns, self._window)[:, None, None])

    def _by_kind(self, full: torch.Tensor | None, sliding: torch.Tensor | None) -> Masks:
        """Return the masks in the form that the model takes."""
        return sliding if self._one_mask else {FULL: full, SLIDING: sliding}

    def _mask(self, positions: torch.Tensor, columns: int, window: int | None) -> torch.Tensor:
        """Return the mask [positions, columns] that shows each position its predecessors."""
        # CUDA's fused kernels need mask rows on multiples of 16 bytes.
        stride = (columns + 7) // 8 * 8
        mask = torch.zeros((len(positions), stride), dtype=self.dtype, device=self.device)
        key, query = torch.arange(stride, device=self.device), positions[:, None]
        hidden = key > query
        if window is not None:
            hidden |= key <= query - window
        return mask.masked_fill_(hidden, float("-inf"))[:, :columns]

    def _hidden(
        self, ids: torch.Tensor, positions: torch.Tensor, masks: Masks, cache: SlotCache
    ) -> torch.Tensor:
        output = self._decoder(
            input_ids=ids,
            position_ids=positions,
            attention_mask=masks,
            past_key_values=cache,
            use_cache=True,
        )
        return cast("torch.Tensor", output.last_hidden_state)

    def _next(self, hidden: torch.Tensor, draws: Draws | None) -> list[int]:
        logits: torch.Tensor = self._head(hidden)
        finite = logits.isfinite().all()
        chosen = logits.argmax(-1) if draws is None else _sample(logits, draws)
        *tokens, sound = torch.cat([chosen, finite[None].long()]).tolist()
        if not sound:
            raise CandidateError("the candidate's logits are not finite")
        return tokens


def _sample(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    """Return the token of each row whose interval of probabilities holds the row's number."""
    chances = torch.softmax(logits.double() / draws.temperature, dim=-1)
    if draws.top_p < 1:
        chances = _likeliest(chances, draws.top_p)
    chances = chances.cumsum(-1)
    uniforms = torch.tensor(draws.uniforms, dtype=torch.float64, device=logits.device)
    # The last sum may be below 1 by rounding.
    thresholds = uniforms[:, None] * chances[:, -1:]
    return torch.searchsorted(chances, thresholds, right=True)[:, 0].clamp_max_(
        logits.shape[-1] - 1
    )


def _likeliest(chances: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return probabilities with 0 for tokens beyond the likeliest that add up to `top_p`."""
    ordered, tokens = chances.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    return chances.masked_fill(
        torch.zeros_like(chances, dtype=torch.bool).scatter_(-1, tokens, before >= top_p), 0.0
    )


def _window(config: PreTrainedConfig) -> int | None:
    """Return the window of the sliding layers in tokens; None without such layers."""
    window = getattr(config, "sliding_window", None)
    one_mask = config.model_type in _WINDOW_IN_ALL_LAYERS
    named = None if one_mask else getattr(config, "layer_types", None)
    kinds = set(named or [FULL if window is None else SLIDING])
    if kinds == {FULL}:
        return None
    takes_masks = one_mask or config.model_type in _MASK_BY_LAYER_TYPE
    supported = kinds <= {FULL, SLIDING} and takes_masks
    if not supported or not isinstance(window, int) or window < 1:
        raise IncompatibleError(
            f"the slot cache cannot decode layers of {sorted(kinds)} with a window of {window}"
        )
    return window


def _require_plain_attention(config: PreTrainedConfig) -> None:
    check_attention(config.to_dict())
    if config._attn_implementation != ATTENTION:  # noqa: SLF001 - no public accessor exists
        raise IncompatibleError(f"the attention is {config._attn_implementation}, not {ATTENTION}")  # noqa: SLF001
