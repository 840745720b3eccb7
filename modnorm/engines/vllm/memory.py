"""The division of memory between two copies of the weights, activations, noise and the cache."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from modnorm.checkpoint.families import Dimensions, Layout
from modnorm.engines.settings import Drafts, EngineSettings
from modnorm.errors import DoesNotFitError

_CPU_CACHE_BYTES = 4 * 2**30
"""Largest key-value cache in a host's memory."""
_FLOAT32 = torch.float32.itemsize
_BLOCK = 128
"""Tokens of a cache block on the CPU."""
_NOISE_BYTES = 2**30
"""Least scratch memory for the noise of a tensor, whose norm is computed."""
_LOGIT_BYTES = 10
"""Bytes of a sampled position for each token of the vocabulary: its logit in the weights' dtype
and twice in float32."""
_FIXED_BYTES = 3 * 2**30
"""CUDA's context, its graphs, and vLLM's buffers."""
_LEAST_CACHE = 2**28
FEWEST_SEQUENCES, MOST_SEQUENCES = 256, 1024
"""Bounds of the sequences that are decoded at once by default. On a CPU they are the fewest."""
_USUAL_TOKENS = 1280
"""Tokens for which the cache of each of these has room: a prompt and an answer at the cap of the
paper."""
_STEP = 64
"""The default number of sequences is a multiple of it."""
_STEP_TOKENS = 8192
"""Most tokens of a step on a GPU, if there are no more sequences."""
_DRAFTED_STEP, _DRAFTED_TOKENS = 2048, 4
"""The same with drafts, and a sequence's tokens in a full step: a short draft and one more."""
_WINDOWED_STEP = 2048
"""The same if layers have windows. vLLM reserves cache for as many tokens in each of those
layers, and for each step in flight."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Numbers of sequences, and the memory of their cache."""

    sequences: int
    """Sequences decoded at once."""
    step_tokens: int | None
    """Most tokens of a step; None for vLLM's own number."""
    cache: int
    """Bytes of keys and values on each GPU."""
    share: float | None = None
    """Part of a GPU's memory that must be free at the start; None on a CPU."""


def weight_bytes(layout: Layout, dtype: torch.dtype, ranks: int) -> int:
    """Return the bytes of one copy of the weights on one of `ranks` GPUs, rounded up."""
    return -(-sum(tensor.numel for tensor in layout) * dtype.itemsize // ranks)


def gpu_sizes(  # noqa: PLR0913 - everything that they depend on
    config: Mapping[str, object],
    layout: Layout,
    dtype: torch.dtype,
    settings: EngineSettings,
    *,
    total: int,
    windows: bool = False,
) -> EngineSizes:
    """Return the sizes of an engine on GPUs of `total` bytes; some layers may have `windows`."""
    size, ranks = Dimensions.from_config(config), settings.tensor_parallel_size
    usable = int(total * settings.gpu_memory_utilization)
    copy = weight_bytes(layout, dtype, ranks)
    noise = max(_NOISE_BYTES, max(tensor.numel for tensor in layout) * _FLOAT32)
    token = 2 * size.layers * -(-size.key_value // ranks) * dtype.itemsize
    usual = token * min(settings.max_model_len or _USUAL_TOKENS, _USUAL_TOKENS)

    drafts = settings.drafts is Drafts.POPULATION

    def sizes(sequences: int) -> EngineSizes:
        tokens = max(_DRAFTED_TOKENS * sequences, _DRAFTED_STEP) if drafts else _STEP_TOKENS
        tokens = max(_WINDOWED_STEP if windows else tokens, sequences)
        activations = tokens * (3 * size.intermediate + 8 * size.hidden) * dtype.itemsize
        # At its start vLLM fills a step with the longest drafts, each token of which has logits.
        logits = (tokens if drafts else sequences) * size.vocabulary * _LOGIT_BYTES
        cache = usable - 2 * copy - noise - activations - logits - _FIXED_BYTES
        return EngineSizes(sequences, tokens, cache, (copy + cache) / total)

    if settings.max_num_seqs:
        chosen = sizes(settings.max_num_seqs)
    else:
        choices = map(sizes, range(MOST_SEQUENCES, FEWEST_SEQUENCES, -_STEP))
        roomy = (choice for choice in choices if choice.cache >= choice.sequences * usual)
        chosen = next(roomy, sizes(FEWEST_SEQUENCES))
    if chosen.cache < _LEAST_CACHE:
        raise DoesNotFitError(
            f"the model does not fit: it needs two copies of {copy / 2**30:.1f} GiB and working "
            f"memory within {settings.gpu_memory_utilization:.0%} of {total / 2**30:.1f} GiB",
            field="engine",
            remedy="raise engine.tensor_parallel_size, or the evaluator's "
            "MODNORM_GPU_MEMORY_UTILIZATION; or lower its MODNORM_ENGINES_PER_GPU"
            + ("; or set engine.drafts to none" if drafts else ""),
        )
    return chosen


def cpu_sizes(
    config: Mapping[str, object],
    dtype: torch.dtype,
    settings: EngineSettings,
    *,
    length: int,
    windows: bool = False,
) -> EngineSizes:
    """Return the sizes of an engine on a CPU, whose cache is bounded; see `gpu_sizes`."""
    size, sequences = Dimensions.from_config(config), settings.max_num_seqs or FEWEST_SEQUENCES
    token = 2 * size.layers * size.key_value * dtype.itemsize
    blocks = -(-length // _BLOCK)
    cache = min(_CPU_CACHE_BYTES, token * _BLOCK * (blocks * sequences + 1))
    tokens = max(_WINDOWED_STEP, sequences) if windows else None
    return EngineSizes(sequences, tokens, cache)
