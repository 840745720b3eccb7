"""Prevents endless waits in vLLM's queues between processes.

A reader that was idle for a second sleeps until the writer pings it. The ping may be lost (vLLM's
pull request 45224), and the worker call is then never answered. Versions after 0.26 check again
every five seconds.

Each queue has a ZeroMQ context of its own. A context terminates when its sockets are closed, which
it tracks by weak references. If context and sockets are one garbage cycle, Python clears these
references first (pyzmq's issue 1003), and garbage collection hangs. A closed engine is such a
cycle.
"""

from functools import wraps
from typing import Protocol

import zmq
from vllm.distributed.device_communicators import shm_broadcast

from modnorm.engines.vllm.internals.register_entry import RegisterEntry, Stage

RECHECK_MS = 1000
"""Milliseconds after which an idle reader checks again."""
_OWN_RECHECK = "SHM_READER_RECHECK_INTERVAL_MS"
"""A constant of the versions that have such a check."""
_MODULE = shm_broadcast.__name__


class _Wait(Protocol):
    def __call__(self, condition: object, timeout_ms: int | None = None) -> None: ...


class QueueContext(zmq.Context):  # type: ignore[misc]  # untyped where vLLM is not installed
    """A context that closes its sockets when it is collected, in any order of collection."""

    _opened: list[zmq.Socket]

    def __init__(self) -> None:
        super().__init__()
        self._opened = []

    def socket(self, kind: int) -> zmq.Socket:
        """Open a socket that lives as long as the context."""
        opened = super().socket(kind)
        self._opened.append(opened)
        return opened

    def __del__(self) -> None:
        if "_opened" not in self.__dict__:  # its constructor failed
            return
        for socket in self._opened:
            socket.close(linger=0)
        self.term()


def fix_queues() -> None:
    """Bound all waits of vLLM's queues; call it once a process, before it makes a queue."""
    if QUEUE_CONTEXTS.is_used(None):
        QUEUE_CONTEXTS.require()
        shm_broadcast.Context = QueueContext
    if QUEUE_WAITS.is_used(None):
        QUEUE_WAITS.require()
        if not hasattr(shm_broadcast.SpinCondition.wait, "__wrapped__"):
            shm_broadcast.SpinCondition.wait = _bounded(shm_broadcast.SpinCondition.wait)


def _bounded(wait: _Wait) -> _Wait:
    @wraps(wait)
    def bounded(condition: object, timeout_ms: int | None = None) -> None:
        wait(condition, RECHECK_MS if timeout_ms is None else min(timeout_ms, RECHECK_MS))

    return bounded


def _has_queues(_: object) -> bool:
    return hasattr(shm_broadcast, "MessageQueue")


def _sleeps_without_bound(_: object) -> bool:
    return hasattr(shm_broadcast, "SpinCondition") and not hasattr(shm_broadcast, _OWN_RECHECK)


def _makes_our_contexts(_: object) -> bool:
    """A queue makes its sockets in a `QueueContext`."""
    queue = shm_broadcast.MessageQueue(1, 1, max_chunk_bytes=1024)
    return isinstance(queue.local_socket.context, QueueContext)


def _is_bounded(_: object) -> bool:
    """Readers wait in the bounded function."""
    return hasattr(shm_broadcast.SpinCondition.wait, "__wrapped__")


QUEUE_CONTEXTS = RegisterEntry(
    name="queue_contexts",
    purpose="Closes the sockets of contexts, so that collecting a closed engine cannot hang.",
    stage=Stage.PROCESS,
    vllm_names=(f"{_MODULE}:Context", f"{_MODULE}:MessageQueue"),
    removable_when="0.33 is the oldest version: its queues close their sockets",
    self_test=_makes_our_contexts,
    applies=_has_queues,
)
QUEUE_WAITS = RegisterEntry(
    name="queue_waits",
    purpose="Bounds the delay by a lost ping to a second, instead of blocking for ever.",
    stage=Stage.PROCESS,
    vllm_names=(f"{_MODULE}:SpinCondition.wait",),
    versions="0.26; later ones have such a check",
    removable_when="0.27 is the oldest version",
    self_test=_is_bounded,
    applies=_sleeps_without_bound,
)
