"""How many steps of vLLM's are under way at once.

vLLM's scheduler plans a step while the one before it runs: two are under way. Where the worker is
a process of its own, what lies between the end of a step and the beginning of the next but one
(tokens travel, are taken in, a step is planned, and travels back) is longer than a step of a small
model: the device waits. With three, the worker has the next step already.

A sequence that ends has one step more taken in vain: only its tokens tell that it has ended.
"""

from typing import Protocol

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request

_USUAL, _AHEAD = 2, 3
_KNOWS = "num_stale_output_tokens"
"""Where requests have it, what was under way for one that is preempted is not mixed up with what
comes once it goes on."""
_DISCARDS = "async_tokens_to_discard"
"""In versions before: how many tokens of a request to drop as they come."""


class _Request(Protocol):
    num_output_placeholders: int
    async_tokens_to_discard: int


class _Preempt(Protocol):
    def __call__(
        self, scheduler: object, request: _Request, *given: object, **named: object
    ) -> None: ...


class _RunsAhead(VllmConfig):  # type: ignore[misc]  # vLLM is untyped where it is not installed
    @property
    def max_concurrent_batches(self) -> int:
        usual: int = super().max_concurrent_batches
        return _AHEAD if usual == _USUAL else usual


def run_ahead(config: VllmConfig) -> None:
    """Have three steps under way instead of two, where the worker is a process of its own.

    vLLM has no setting for it: it derives the number from others, here and in its workers, which
    make as many buffers. Versions that derive it elsewhere are left as they are, and so are those
    that would mix up the tokens of a request that is preempted with two steps of it under way.
    """
    apart = config.parallel_config.distributed_executor_backend == "mp"
    if apart and hasattr(VllmConfig, "max_concurrent_batches") and _keeps_tokens_apart():
        config.__class__ = _RunsAhead


def _keeps_tokens_apart() -> bool:
    has = Request.__init__.__code__.co_names
    if _KNOWS in has:
        return True
    if _DISCARDS not in has:
        return False
    preempt = AsyncScheduler._preempt_request  # noqa: SLF001 - vLLM offers no other occasion
    if not hasattr(preempt, "__wrapped__"):
        AsyncScheduler._preempt_request = _discarding(preempt)  # noqa: SLF001 - see above
    return True


def _discarding(preempt: _Preempt) -> _Preempt:
    """Have a preempted request drop what is under way for it; it says the same again."""

    def preempt_and_discard(
        scheduler: object, request: _Request, *given: object, **named: object
    ) -> None:
        preempt(scheduler, request, *given, **named)
        request.async_tokens_to_discard += request.num_output_placeholders
        request.num_output_placeholders = 0

    preempt_and_discard.__wrapped__ = preempt  # type: ignore[attr-defined]  # as functools.wraps sets it
    return preempt_and_discard
