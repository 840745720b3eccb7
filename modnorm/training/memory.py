"""The number of examples that one forward and backward pass may hold."""

from collections.abc import Mapping

import torch

from modnorm.checkpoint.config import positive
from modnorm.checkpoint.pretrained import arithmetic_dtype

CPU_BYTES = 2 * 2**30
"""Memory for activations on a CPU: fixed, since micro-batches decide how sums are rounded."""
GPU_SHARE = 0.4
"""Share of a GPU's memory for activations. Free memory does not count: another process must not
change the rounding."""
_HIDDEN, _INNER = 24, 8
"""Saved activations of a layer for each token, in units of hidden and of intermediate size."""


def activation_bytes(config: Mapping[str, object], dtype: torch.dtype) -> int:
    """Return an estimate of the bytes that a token needs between forward and backward pass.

    Args:
        config: `config.json` of the decoder.
        dtype: Dtype of the arithmetic.
    """
    hidden = positive(config, "hidden_size")
    inner = positive(config, "intermediate_size")
    layer = _HIDDEN * hidden + _INNER * inner
    return positive(config, "num_hidden_layers") * layer * dtype.itemsize


def micro_batch(batch: int, longest: int, token_bytes: int, device: torch.device) -> int:
    """Return the largest divisor of the effective batch whose activations fit.

    Args:
        batch: Effective batch in examples.
        longest: Tokens of the longest example.
        token_bytes: As `activation_bytes` returns.
        device: Where the model is trained.

    Returns:
        At least 1, also if one example may not fit.
    """
    fits = max(1, _memory(device) // (longest * token_bytes))
    return max(size for size in range(1, min(batch, fits) + 1) if batch % size == 0)


def halved(batch: int, size: int) -> int:
    """Return the largest divisor of the effective batch that is at most half of `size`."""
    return max(each for each in range(1, max(1, size // 2) + 1) if batch % each == 0)


def training_dtype(weights: torch.dtype, device: torch.device, *, full: bool) -> torch.dtype:
    """Return the dtype that weights have in training.

    Full training keeps float32 weights, since steps are smaller than the steps of bfloat16. The
    frozen weights below an adapter stay bfloat16 on a GPU.
    """
    if full or weights != torch.bfloat16:
        return torch.float32
    return arithmetic_dtype(weights, device)


def _memory(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_BYTES
    return int(GPU_SHARE * torch.cuda.get_device_properties(device).total_memory)
