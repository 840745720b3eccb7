"""Keeps all leases of a worker alive, by one message at a time."""

import logging
import threading
import time
from collections.abc import Sequence
from contextvars import Context
from typing import Protocol

from modnorm.errors import ModnormError
from modnorm.v1 import evaluation_pb2 as messages
from services.common.tracing import add_trace_context
from services.evaluator.aggregator_client import AggregatorClient

logger = logging.getLogger(__name__)

Answer = messages.HeartbeatResponse | ModnormError


class Kept(Protocol):
    """A lease that is to be kept."""

    lease: messages.Lease
    context: Context
    """The context of its work: its trace, and its names in the log."""

    def lasts(self) -> bool:
        """Tell whether it is still to be kept."""

    def beat(self) -> messages.HeartbeatRequest:
        """Return what there is to say now."""

    def hear(self, answer: Answer) -> None:
        """Take in the answer to what was said last."""


class Heartbeats:
    """Speaks for all leases of a worker, from a thread that lasts as long as there are any.

    What is said of a lease is composed and answered before anything else is said of any: the order
    in which the aggregator hears it is that in which it came about.

    Args:
        client: Sends heartbeats.
        seconds: Longest pause between two; a third of the shortest lease at most.
    """

    def __init__(self, client: AggregatorClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._kept: list[Kept] = []
        self._changed = threading.Condition()
        self._runs = False
        self._hastened = False
        self._speaking = threading.Lock()

    def add(self, kept: Kept) -> None:
        """Keep a lease from now on."""
        with self._changed:
            self._kept.append(kept)
            self._changed.notify()
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def remove(self, kept: Kept) -> None:
        """Let a lease go; a heartbeat that is under way may still speak of it, and is fenced."""
        with self._changed:
            if kept in self._kept:
                self._kept.remove(kept)
                self._changed.notify()

    def hasten(self) -> None:
        """Have all be spoken of as soon as can be; returns before that."""
        with self._changed:
            self._hastened = True
            self._changed.notify()

    def send(self, kept: Sequence[Kept]) -> None:
        """Speak of leases now, once what is being said is answered; each hears its answer."""
        with self._speaking:
            calls = [_call_about(one) for one in kept]
            for one, answer in zip(kept, self._client.heartbeats(calls), strict=True):
                one.hear(answer)

    def _run(self) -> None:
        while kept := self._due():
            try:
                self.send(kept)
            except Exception:
                # A defect must not cost every lease.
                logger.exception("no heartbeat could be sent")

    def _due(self) -> Sequence[Kept]:
        """Wait until heartbeats are due; none are once no lease is left."""
        with self._changed:
            before = time.monotonic()
            while self._kept:
                left = before + self._pause() - time.monotonic()
                if left > 0 and not self._hastened:
                    self._changed.wait(left)
                    continue
                self._hastened = False
                self._kept = [one for one in self._kept if one.lasts()]
                if self._kept:
                    return tuple(self._kept)
            self._runs = False
            return ()

    def _pause(self) -> float:
        return min(self._seconds, *(one.lease.seconds / 3 for one in self._kept))


def _call_about(kept: Kept) -> messages.Call:
    """Return the heartbeat of a lease, in the trace of its work."""
    call = messages.Call(heartbeat=kept.beat())
    # A copy: the thread of the work may be inside the context.
    return kept.context.copy().run(add_trace_context, call)
