"""Mend what lets a process wait for ever for vLLM's queues between processes.

A reader that has been idle for a second sleeps until the writer pings it, and the ping may be lost
(vLLM's pull request 45224): a call of a worker is then never answered. Versions after 0.26 look by
themselves every five seconds; 0.26 does not.

Each queue has a ZeroMQ context of its own, and to end a context is to wait until its sockets are
closed. It knows them by weak references, which Python clears first where it finds a context and
its sockets in one cycle of garbage (pyzmq's issue 1003): the collection, whoever caused it, then
never ends. Engines are such garbage, once they are closed or where their start has failed.
"""

from typing import Protocol

import zmq
from vllm.distributed.device_communicators import shm_broadcast

LONGEST_MS = 1000
"""Milliseconds after which an idle reader looks again."""
_BOUND = "SHM_READER_RECHECK_INTERVAL_MS"
"""What a vLLM that looks by itself has."""


class _Wait(Protocol):
    def __call__(self, condition: object, timeout_ms: int | None = None) -> None: ...


class QueueContext(zmq.Context):  # type: ignore[misc]  # untyped where vLLM is not installed
    """A context that closes its sockets when it goes, in whatever order garbage is collected."""

    _opened: list[zmq.Socket]

    def __init__(self) -> None:
        super().__init__()
        self._opened = []

    def socket(self, kind: int) -> zmq.Socket:
        """Open a socket, which lives as long as the context."""
        opened = super().socket(kind)
        self._opened.append(opened)
        return opened

    def __del__(self) -> None:
        if "_opened" not in self.__dict__:  # it could not be made
            return
        for one in self._opened:
            one.close(linger=0)
        self.term()


def mend_queues() -> None:
    """Have vLLM's queues keep nobody waiting for ever; once a process, before there are any."""
    if hasattr(shm_broadcast, "Context"):
        shm_broadcast.Context = QueueContext
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
