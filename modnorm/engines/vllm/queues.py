"""Keep vLLM's processes from waiting for ever for a message that is there.

A reader of vLLM's queue between processes that has been idle for a second sleeps until the writer
pings it, and the ping may be lost (vLLM's pull request 45224): a call of a worker is then never
answered. Versions after 0.26 look by themselves every five seconds; 0.26 does not.
"""

from typing import Protocol

from vllm.distributed.device_communicators import shm_broadcast

LONGEST_MS = 1000
"""Milliseconds after which an idle reader looks again."""
_BOUND = "SHM_READER_RECHECK_INTERVAL_MS"
"""What a vLLM that looks by itself has."""


class _Wait(Protocol):
    def __call__(self, condition: object, timeout_ms: int | None = None) -> None: ...


def bound_waits() -> None:
    """Have idle readers look again after `LONGEST_MS`, where vLLM's do not; once a process."""
    condition = getattr(shm_broadcast, "SpinCondition", None)
    if condition is None or hasattr(shm_broadcast, _BOUND):
        return
    if not hasattr(condition.wait, "__wrapped__"):
        condition.wait = _bounded(condition.wait)


def _bounded(wait: _Wait) -> _Wait:
    def bounded(condition: object, timeout_ms: int | None = None) -> None:
        wait(condition, LONGEST_MS if timeout_ms is None else min(timeout_ms, LONGEST_MS))

    bounded.__wrapped__ = wait  # type: ignore[attr-defined]  # as functools.wraps sets it
    return bounded
