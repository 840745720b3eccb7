"""A transformers causal language model as the decoding loop sees it."""

from typing import Protocol, cast

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from modnorm.engines.slots import ATTENTION, PrefillWrite, SlotCache, StepWrite
from modnorm.errors import CandidateError, IncompatibleError


class _Decoder(Protocol):
    def __call__(self, **inputs: object) -> "_Hidden": ...


class _Hidden(Protocol):
    last_hidden_state: torch.Tensor


class CausalModel:
    """The next greedy token of every row, over a slot cache.

    Args:
        model: A decoder whose attention is `slot_attention` and whose logits are a linear map of
            its last hidden state.

    Raises:
        IncompatibleError: the model attends to a window, or its rotary embedding depends on what
            else is in the batch.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        _require_plain_attention(model.config)
        self.config: PreTrainedConfig = model.config
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._decoder = cast("_Decoder", model.base_model)
        self._head = cast("torch.nn.Module", model.get_output_embeddings())

    @torch.inference_mode()
    def prefill(
        self, prompts: torch.Tensor, lengths: torch.Tensor, cache: SlotCache, first: int
    ) -> list[int]:
        """Read whole prompts into consecutive slots.

        Args:
            prompts: Token ids, int64 [rows, columns], padded on the right.
            lengths: Tokens of each prompt, int64 [rows].
            cache: Where keys and values go.
            first: First slot.

        Returns:
            The first token of each completion.

        Raises:
            CandidateError: the logits are not finite.
        """
        columns = torch.arange(prompts.shape[1], device=self.device)
        write = PrefillWrite(first, columns < lengths[:, None])
        hidden = self._hidden(prompts, columns[None], None, cache.prepare(write))
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
        mask = self._mask(places, write.columns)
        hidden = self._hidden(ids[:, None], places[:, None], mask, cache.prepare(write))
        return self._greedy(hidden[:, 0])

    def _mask(self, positions: torch.Tensor, columns: int) -> torch.Tensor:
        """Return the additive mask [rows, 1, 1, columns] of what each row has."""
        # CUDA's fused kernels want rows of the mask on multiples of 16 bytes.
        stride = (columns + 7) // 8 * 8
        mask = torch.zeros((len(positions), stride), dtype=self.dtype, device=self.device)
        beyond = torch.arange(stride, device=self.device) > positions[:, None]
        return mask.masked_fill_(beyond, float("-inf"))[:, None, None, :columns]

    def _hidden(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None,
        cache: SlotCache,
    ) -> torch.Tensor:
        return self._decoder(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
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


def _require_plain_attention(config: PreTrainedConfig) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    rope = getattr(config, "rope_parameters", None) or {}
    if kinds != {"full_attention"}:
        raise IncompatibleError(f"layers of {sorted(kinds)} cannot be decoded in slots")
    if rope.get("rope_type") in {"dynamic", "longrope"}:
        raise IncompatibleError(
            f"rotary embedding {rope['rope_type']!r} depends on the rest of the batch"
        )
    if config._attn_implementation != ATTENTION:  # noqa: SLF001 - no public accessor exists
        raise IncompatibleError(f"attention is {config._attn_implementation}")  # noqa: SLF001
