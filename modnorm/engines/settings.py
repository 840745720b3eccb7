"""What an engine is told besides the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the vLLM engine; other engines use none of them."""

    max_model_len: int | None = None
    """Longest sequence in tokens, prompt and completion together; the model's own when None."""
    gpu_memory_utilization: float = 0.9
    """Share of a GPU's memory for everything: both copies of the weights, noise, cache."""
    tensor_parallel_size: int = 1
    """GPUs that one model is spread over."""
    max_num_seqs: int = 256
    """Sequences decoded at once."""
