"""A transformers causal language model as the decoding loop sees it."""

from collections.abc import Mapping
from typing import Protocol, cast

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from modnorm.engines.slots import ATTENTION, PrefillWrite, SlotCache, StepWrite
from modnorm.errors import CandidateError, IncompatibleError


class _Decoder(Protocol):
    def __call__(self, **inputs: object) -> "_Hidden": ...


Masks = torch.Tensor | None | dict[str, torch.Tensor | None]
"""Additive masks: one for all layers, or one for each kind of layer; None is causal."""

FULL, SLIDING = "full_attention", "sliding_attention"
_BY_KIND = frozenset({"gemma3_text", "olmo3", "qwen2", "qwen3"})
"""Models in transformers that take a mask for each kind of layer."""


class _Hidden(Protocol):
    last_hidden_state: torch.Tensor


class CausalModel:
    """The next greedy token of every row, over a slot cache.

    Args:
        model: A decoder whose attention is `slot_attention` and whose logits are a linear map of
            its last hidden state.

    Raises:
        IncompatibleError: its layers attend in a way that is not known here, its logits are
            capped, or its rotary embedding depends on what else is in the batch.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        _require_plain_attention(model.config)
        self._window = _window(model.config)
        self.config: PreTrainedConfig = model.config
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._decoder = cast("_Decoder", model.base_model)
        self._head = cast("torch.nn.Module", model.get_output_embeddings())

    @torch.inference_mode()
    def prefill(
        self,
        prompts: torch.Tensor,
        lengths: torch.Tensor,
        cache: SlotCache,
        *,
        first: int,
        start: int = 0,
    ) -> list[int]:
        """Read prompts into consecutive slots, whole or from the same position on.

        Args:
            prompts: Token ids from that position on, int64 [rows, columns], padded on the right.
            lengths: How many of each are no padding, int64 [rows].
            cache: Where keys and values go.
            first: First slot.
            start: The position; what precedes it is in the slots.

        Returns:
            The first token of each completion.

        Raises:
            CandidateError: the logits are not finite.
        """
        columns = torch.arange(prompts.shape[1], device=self.device)
        write = PrefillWrite(first, columns < lengths[:, None], start)
        places = columns + start
        masks = self._prompt_masks(places, start + prompts.shape[1])
        hidden = self._hidden(prompts, places[None], masks, cache.prepare(write))
        rows = torch.arange(len(prompts), device=self.device)
        return self._greedy(hidden[rows, lengths - 1])

    @torch.inference_mode()
    def step(self, tokens: list[int], positions: list[int], cache: SlotCache) -> list[int]:
        """Append one token to every live sequence.

        Args:
            tokens: The token of each live slot.
            positions: Its position, which is its column.
            cache: Where keys and values are.

        Returns:
            The token after each.

        Raises:
            CandidateError: the logits are not finite.
        """
        both = torch.tensor([tokens, positions], device=self.device)
        ids, places = both[0], both[1]
        rows = torch.arange(len(tokens), device=self.device)
        write = StepWrite(rows, places, max(positions) + 1)
        masks = self._step_masks(places, write.columns)
        hidden = self._hidden(ids[:, None], places[:, None], masks, cache.prepare(write))
        return self._greedy(hidden[:, 0])

    def _prompt_masks(self, positions: torch.Tensor, columns: int) -> Masks:
        """Return what each token of a prompt attends to: masks of [1, 1, positions, columns]."""
        whole = len(positions) == columns
        full = None if whole else self._mask(positions, columns, None)[None, None]
        if self._window is None:
            return full
        if columns <= self._window:
            return {FULL: full, SLIDING: full}
        return {FULL: full, SLIDING: self._mask(positions, columns, self._window)[None, None]}

    def _step_masks(self, positions: torch.Tensor, columns: int) -> Masks:
        """Return what the last token of each row attends to: masks of [rows, 1, 1, columns]."""
        full = self._mask(positions, columns, None)[:, None, None]
        if self._window is None:
            return full
        return {FULL: full, SLIDING: self._mask(positions, columns, self._window)[:, None, None]}

    def _mask(self, positions: torch.Tensor, columns: int, window: int | None) -> torch.Tensor:
        """Return the additive mask [positions, columns] of what precedes each position.

        Args:
            positions: Where the queries are, int64.
            columns: Columns of keys.
            window: How many columns a query sees, its own included; all up to it when None.
        """
        # CUDA's fused kernels want rows of the mask on multiples of 16 bytes.
        stride = (columns + 7) // 8 * 8
        mask = torch.zeros((len(positions), stride), dtype=self.dtype, device=self.device)
        key, query = torch.arange(stride, device=self.device), positions[:, None]
        hidden = key > query
        if window is not None:
            hidden |= key <= query - window
        return mask.masked_fill_(hidden, float("-inf"))[:, :columns]

    def _hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        masks: Masks,
        cache: SlotCache,
    ) -> torch.Tensor:
        return self._decoder(
            input_ids=ids,
            position_ids=positions,
            attention_mask=masks,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state

    def _greedy(self, hidden: torch.Tensor) -> list[int]:
        logits: torch.Tensor = self._head(hidden)
        finite = logits.isfinite().all()
        *tokens, sound = torch.cat([logits.argmax(-1), finite[None].long()]).tolist()
        if not sound:
            raise CandidateError("the candidate's logits are not finite")
        return tokens


def _window(config: PreTrainedConfig) -> int | None:
    """Return how many tokens the sliding layers see; None when there are none.

    Raises:
        IncompatibleError: the layers are not all of a kind that is known here.
    """
    kinds = set(getattr(config, "layer_types", None) or [FULL])
    if kinds == {FULL}:
        return None
    window = getattr(config, "sliding_window", None)
    known = kinds <= {FULL, SLIDING} and config.model_type in _BY_KIND
    if not known or not isinstance(window, int) or window < 1:
        raise IncompatibleError(
            f"layers of {sorted(kinds)} with a window of {window} cannot be decoded in slots"
        )
    return window


def _require_plain_attention(config: PreTrainedConfig) -> None:
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, cap, None) is not None:
            raise IncompatibleError(f"{cap} cannot be decoded in slots")
    if getattr(config, "use_bidirectional_attention", False):
        raise IncompatibleError("attention that looks ahead cannot be decoded in slots")
    for rope in _ropes(config):
        if rope.get("rope_type") in {"dynamic", "longrope"}:
            raise IncompatibleError(
                f"rotary embedding {rope['rope_type']!r} depends on the rest of the batch"
            )
    if config._attn_implementation != ATTENTION:  # noqa: SLF001 - no public accessor exists
        raise IncompatibleError(f"attention is {config._attn_implementation}")  # noqa: SLF001


def _ropes(config: PreTrainedConfig) -> list[Mapping[str, object]]:
    """Return the settings of each rotary embedding: one, or one for each kind of layer."""
    settings: Mapping[str, object] = getattr(config, "rope_parameters", None) or {}
    by_kind = [value for value in settings.values() if isinstance(value, Mapping)]
    return by_kind or [settings]
