"""What an engine is told besides the model."""

from dataclasses import dataclass
from enum import StrEnum


class Numerics(StrEnum):
    """What the rounding of an answer may depend on."""

    FAST = "fast"
    """On what shares its batch, too."""
    BATCH_INVARIANT = "batch_invariant"
    """Not on what shares its batch: vLLM's batch-invariant kernels."""


DEFAULT_SHARE = 0.9
"""Part of a GPU's memory that an engine takes which has it to itself."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the vLLM engine; of them other engines have the part of the memory."""

    max_model_len: int | None = None
    """Longest sequence in tokens, prompt and completion together; the model's own when None."""
    gpu_memory_utilization: float = DEFAULT_SHARE
    """Share of a GPU's memory for everything: both copies of the weights, noise, cache."""
    tensor_parallel_size: int = 1
    """GPUs that one model is spread over."""
    max_num_seqs: int = 256
    """Sequences decoded at once."""
    max_parked_seqs: int = 1024
    """Sequences that may rest beside those: fewer where their logits would take much memory."""
    worker_process: bool = True
    """Whether vLLM's worker on a GPU is a process of its own: the scheduler then prepares a step
    while the worker launches another. It brings nothing to engines that share a GPU."""
    numerics: Numerics = Numerics.FAST
    """A process keeps what its first engine was started with."""
