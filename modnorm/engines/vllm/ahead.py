"""How many steps of vLLM's are under way at once.

vLLM's scheduler plans a step while the one before it runs: two are under way. Where the worker is
a process of its own, what lies between the end of a step and the beginning of the next but one
(tokens travel, are taken in, a step is planned, and travels back) is longer than a step of a small
model: the device waits. With three, the worker has the next step already.

A sequence that ends has one step more taken in vain: only its tokens tell that it has ended.
"""

from vllm.config import VllmConfig

_USUAL, _AHEAD = 2, 3


class _RunsAhead(VllmConfig):  # type: ignore[misc]  # vLLM is untyped where it is not installed
    @property
    def max_concurrent_batches(self) -> int:
        usual: int = super().max_concurrent_batches
        return _AHEAD if usual == _USUAL else usual


def run_ahead(config: VllmConfig) -> None:
    """Have three steps under way instead of two, where the worker is a process of its own.

    vLLM has no setting for it: it derives the number from others, here and in its workers, which
    make as many buffers. Versions that derive it elsewhere are left as they are.
    """
    apart = config.parallel_config.distributed_executor_backend == "mp"
    if apart and hasattr(VllmConfig, "max_concurrent_batches"):
        config.__class__ = _RunsAhead
