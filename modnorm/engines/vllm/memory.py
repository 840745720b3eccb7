"""The division of memory between two copies of the weights, noise and vLLM's cache.

vLLM measures its own copy of the weights and its activations, and gives the rest of its share to
the cache. The pristine copy and the noise are allocated later, so vLLM gets a smaller share.
"""

from collections.abc import Mapping
from math import prod

import torch

from modnorm.checkpoint.families import Dimensions
from modnorm.checkpoint.layout import Layout
from modnorm.errors import DoesNotFitError

CPU_CACHE_BYTES = 4 * 2**30
"""Largest key-value cache in a host's memory."""
_BLOCK = 128
"""Tokens of a cache block on the CPU."""
_NOISE_BYTES = 2**30
"""Scratch memory of the noise norms (`modnorm.perturbation.kernels.launch_sizes`)."""
_LOGITS_SHARE = 0.02
"""Share of the memory for the logits of parked sequences. Sampling takes a few times as much."""
_MIN_SHARE = 0.05
"""Share of the memory that vLLM needs at least for activations and a cache."""


def weight_bytes(layout: Layout, dtype: torch.dtype, ranks: int) -> int:
    """Return the bytes of one copy of the weights on one of `ranks` GPUs, rounded up."""
    return -(-sum(tensor.numel for tensor in layout) * dtype.itemsize // ranks)


def vllm_share(
    layout: Layout, dtype: torch.dtype, *, total: int, utilization: float, ranks: int
) -> float:
    """Return the share of a GPU's memory that vLLM may take.

    Args:
        layout: All physical tensors.
        dtype: Dtype of the weights.
        total: Bytes of the GPU.
        utilization: Share for weights, noise and cache together.
        ranks: GPUs of the model.

    Raises:
        DoesNotFitError: the model does not fit twice.
    """
    copy = weight_bytes(layout, dtype, ranks)
    largest = max(prod(tensor.shape) for tensor in layout) * torch.float32.itemsize
    share = utilization - (copy + max(_NOISE_BYTES, largest)) / total
    if share < copy / total + _MIN_SHARE:
        raise DoesNotFitError(
            f"the model does not fit: it needs two copies of {copy / 2**30:.1f} GiB and working "
            f"memory within {utilization:.0%} of {total / 2**30:.1f} GiB",
            field="engine",
            remedy="raise engine.tensor_parallel_size, or the evaluator's "
            "MODNORM_GPU_MEMORY_UTILIZATION; or lower its MODNORM_ENGINES_PER_GPU",
        )
    return share


def parked_sequences(vocabulary: int, requested: int, *, total: int) -> int:
    """Return the number of sequences that may be parked, beside those that are decoded.

    vLLM reserves memory for the logits of all its sequences, even if they are never decoded at
    once. So the number is bounded by a small share of the memory.

    Args:
        vocabulary: Tokens of the vocabulary.
        requested: Upper bound of the number.
        total: Bytes that the engine may use.
    """
    return min(requested, int(_LOGITS_SHARE * total / (vocabulary * torch.float32.itemsize)))


def cpu_cache_bytes(
    config: Mapping[str, object], dtype: torch.dtype, *, length: int, sequences: int
) -> int:
    """Return the cache size in bytes for the longest sequences, up to a bound.

    Args:
        config: The model's `config.json`.
        dtype: Dtype of the weights.
        length: Tokens of the longest sequence.
        sequences: Sequences at once.
    """
    size = Dimensions.from_config(config)
    token = 2 * size.layers * size.key_value * dtype.itemsize
    blocks = -(-length // _BLOCK)
    return min(CPU_CACHE_BYTES, token * _BLOCK * (blocks * sequences + 1))
