"""Settings of an engine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class Numerics(StrEnum):
    """Whether the rounding of an answer may depend on the other sequences in its batch."""

    FAST = "fast"
    """It may."""
    BATCH_INVARIANT = "batch_invariant"
    """It does not: vLLM uses its batch-invariant kernels."""


class Drafts(StrEnum):
    """Whether an engine verifies draft tokens, several in one step."""

    NONE = "none"
    """It decodes one token a step."""
    POPULATION = "population"
    """It drafts from other candidates' answers to the same prompt, and from the answer itself."""


DEFAULT_SHARE = 0.9
"""Part of a GPU's memory that an engine uses when it is alone on the GPU."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the vLLM engine; other engines use `gpu_memory_utilization` only."""

    max_model_len: int | None = None
    """Longest sequence in tokens, prompt and completion together; the model's own when None."""
    gpu_memory_utilization: float = DEFAULT_SHARE
    """Part of a GPU's memory for both copies of the weights, noise and cache."""
    tensor_parallel_size: int = 1
    """GPUs of one model."""
    max_num_seqs: int | None = None
    """Sequences decoded at once; by default as many as model and memory allow (`memory`)."""
    worker_process: bool = True
    """Whether vLLM's worker on a GPU is a process of its own. The scheduler then prepares a step
    while the worker launches another. Engines that share a GPU gain nothing by it."""
    numerics: Numerics = Numerics.FAST
    """A process keeps the mode of its first engine."""
    drafts: Drafts = Drafts.NONE
    """Source of draft tokens."""

    @property
    def has_worker_processes(self) -> bool:
        """Whether vLLM's workers on GPUs are processes of their own."""
        return self.worker_process or self.tensor_parallel_size > 1


class StartStage:
    """One thread starts an engine and sets the stage, others read it."""

    def __init__(self) -> None:
        self.text = ""
        """The stage in words; empty while no engine starts."""
        self._on_change: Callable[[], None] = lambda: None

    def enter(self, text: str) -> None:
        self.text = text
        self._on_change()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start an engine inside the context, whose end ends the last stage."""
        try:
            yield
        finally:
            self.enter("")

    def observe(self, on_change: Callable[[], None]) -> None:
        """Call a function at each change from now on, instead of an earlier one."""
        self._on_change = on_change


STAGE = StartStage()
"""The stage of this process."""
