"""How a GPU's memory is shared between two copies of the weights, noise and vLLM's cache.

vLLM measures what its own copy of the weights and its activations take, and gives the rest of its
share to the cache. The pristine copy and the noise come after that, so vLLM is told of a smaller
share.
"""

from collections.abc import Mapping
from math import prod

import torch

from modnorm.checkpoint.families import Dimensions
from modnorm.checkpoint.layout import Layout
from modnorm.errors import DoesNotFitError

CPU_CACHE_BYTES = 4 * 2**30
"""Most that the key-value cache takes of a host's memory."""
_BLOCK = 128
"""Tokens of a cache block on the CPU."""
_NOISE_BYTES = 2**30
"""Scratch memory of the noise norms (`modnorm.perturbation.kernels.tuning`)."""
_LOGITS_SHARE = 0.02
"""Share of the memory that logits of parked sequences may take: their sampling takes some times
that."""
_LEAST_SHARE = 0.05
"""Share of the memory without which vLLM has no room for activations and a cache."""


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
        utilization: Share of it that everything together may take.
        ranks: GPUs that the model is spread over.

    Raises:
        DoesNotFitError: the model does not fit twice.
    """
    copy = weight_bytes(layout, dtype, ranks)
    largest = max(prod(tensor.shape) for tensor in layout) * torch.float32.itemsize
    share = utilization - (copy + max(_NOISE_BYTES, largest)) / total
    if share < copy / total + _LEAST_SHARE:
        raise DoesNotFitError(
            f"the model does not fit: two copies of {copy / 2**30:.1f} GiB and room to work in "
            f"{utilization:.0%} of {total / 2**30:.1f} GiB",
            field="engine",
            remedy="raise engine.tensor_parallel_size, or the evaluator's "
            "MODNORM_GPU_MEMORY_UTILIZATION; or lower its MODNORM_ENGINES_PER_GPU",
        )
    return share


def parked_sequences(vocabulary: int, asked: int, *, total: int) -> int:
    """Return how many sequences may rest, beside those that are decoded.

    vLLM sets memory aside for the logits of all sequences that it has a place for, whether they
    are ever decoded at once or not.

    Args:
        vocabulary: Words.
        asked: Sequences.
        total: Bytes that the engine may take.

    Returns:
        As many as asked for, or as take little of that.
    """
    return min(asked, int(_LOGITS_SHARE * total / (vocabulary * torch.float32.itemsize)))


def cpu_cache_bytes(
    config: Mapping[str, object], dtype: torch.dtype, *, length: int, sequences: int
) -> int:
    """Return the bytes that the longest sequences need, up to a bound.

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
