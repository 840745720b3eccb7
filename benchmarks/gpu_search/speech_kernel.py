"""Triton kernel that makes a given token certain in each row of logits."""

from typing import Any

import torch
import triton
import triton.language as tl

_CERTAIN = 30000.0
"""Logit of the given token, far above all others."""


@triton.jit
def _make_certain(
    logits: tl.tensor,
    stride: tl.tensor,
    slots: tl.tensor,
    inputs: tl.tensor,
    positions: tl.tensor,
    prompts: tl.tensor,
    rows: tl.tensor,
    texts: tl.tensor,
    width: tl.tensor,
    CERTAIN: tl.constexpr,
) -> None:
    """Raise the logit of the next token of one row's text."""
    line = tl.program_id(0)
    slot = tl.load(slots + line).to(tl.int64)
    position = tl.load(positions + tl.load(inputs + line)).to(tl.int64)
    place = position + 1 - tl.load(prompts + slot).to(tl.int64)
    place = tl.minimum(tl.maximum(place, 0), width - 1)
    token = tl.load(texts + tl.load(rows + slot) * width + place)
    tl.store(logits + line.to(tl.int64) * stride + token, CERTAIN)


def make_certain(
    logits: torch.Tensor,
    batch: Any,  # noqa: ANN401 - vLLM's
    prompts: torch.Tensor,
    rows: torch.Tensor,
    texts: torch.Tensor,
) -> torch.Tensor:
    """Change the logits of a step in place, so that the next token is that of a text; return them.

    Args:
        logits: [lines, vocabulary].
        batch: The step, with the slot and the input of each line.
        prompts: Tokens of each slot's prompt.
        rows: Row of each slot in the texts, int64.
        texts: Token ids, int64 [rows, tokens].
    """
    _make_certain[(len(logits),)](
        logits, logits.stride(0), batch.expanded_idx_mapping, batch.logits_indices,
        batch.positions, prompts, rows, texts, texts.shape[1], _CERTAIN,
    )  # fmt: skip
    return logits
