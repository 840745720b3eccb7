"""The leases of jobs, kept alive by heartbeats while the jobs are worked on."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Self

from modnorm.errors import CancelledError, ModnormError, NotFoundError, StaleLeaseError
from modnorm.v1 import evaluation_pb2 as messages
from services.common.tracing import add_trace_context
from services.evaluator.aggregator_client import AggregatorClient
from services.evaluator.candidate_bar import CandidateBar
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import LOAD_FACTOR

LEAST_SILENCE = 1_800.0
"""Least seconds without progress until a lease is let go: loading a large model takes minutes."""
_MARGIN = 60.0
"""Seconds before that in which the watchdog ends a worker that hangs, and fails its job."""

logger = logging.getLogger(__name__)


def longest_silence(stall_seconds: float) -> float:
    """Return how many seconds a lease is kept without progress: a model may load for as long."""
    return max(LEAST_SILENCE, LOAD_FACTOR * stall_seconds + _MARGIN)


class HandedBackError(Exception):
    """The worker cannot go on with the job, which is not at fault."""

    def __init__(self, reason: str = "the worker is stopping") -> None:
        super().__init__(reason)


class GivenUpError(HandedBackError):
    """Raised in all parked jobs at once; the raiser releases their leases in one call."""


class Heartbeats:
    """Extends all leases of a worker by one message, from a thread that lasts while there are any.

    One message is answered before the next is composed, so that the aggregator hears of changes in
    their order.

    Args:
        client: Sends heartbeats.
        seconds: Longest pause between two; a third of the shortest lease at most.
    """

    def __init__(self, client: AggregatorClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._leases: list[HeldLease] = []
        self._changed = threading.Condition()
        self._runs = False
        self._hastened = False
        self._sending = threading.Lock()

    def add(self, lease: "HeldLease") -> None:
        """Extend a lease from now on."""
        with self._changed:
            self._leases.append(lease)
            self._changed.notify()
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def remove(self, lease: "HeldLease") -> None:
        """Let a lease go. The aggregator fences a heartbeat that is under way."""
        with self._changed:
            if lease in self._leases:
                self._leases.remove(lease)
                self._changed.notify()

    def hasten(self) -> None:
        """Have the next heartbeat sent at once; return before that."""
        with self._changed:
            self._hastened = True
            self._changed.notify()

    def send(self, leases: Sequence["HeldLease"]) -> None:
        """Extend leases now, after the heartbeat under way; each hears its answer."""
        with self._sending:
            calls = [lease.beat() for lease in leases]
            for lease, answer in zip(leases, self._client.heartbeats(calls), strict=True):
                lease.hear(answer)

    def _run(self) -> None:
        while leases := self._due():
            try:
                self.send(leases)
            except Exception:
                # A defect must not cost every lease.
                logger.exception("no heartbeat could be sent")

    def _due(self) -> Sequence["HeldLease"]:
        """Wait until heartbeats are due; return none once no lease is left."""
        with self._changed:
            before = time.monotonic()
            while self._leases:
                left = before + self._pause() - time.monotonic()
                if left > 0 and not self._hastened:
                    self._changed.wait(left)
                    continue
                self._hastened = False
                self._leases = [lease for lease in self._leases if lease.lasts()]
                if self._leases:
                    return tuple(self._leases)
            self._runs = False
            return ()

    def _pause(self) -> float:
        return min(self._seconds, *(lease.lease.seconds / 3 for lease in self._leases))


class HeldLease:
    """Context in which heartbeats extend a lease and say when to stop.

    Args:
        heartbeats: Sends the heartbeats.
        lease: The lease.
        shutdown: Says when to hand the job back.
        bar: Raised by the answers to heartbeats.
        silence_seconds: How long the lease is kept without progress.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        lease: messages.Lease,
        shutdown: Shutdown,
        *,
        bar: CandidateBar | None = None,
        silence_seconds: float = LEAST_SILENCE,
    ) -> None:
        self.lease = lease
        self.total = 0
        """Answers in all, for the progress in heartbeats."""
        self._context = copy_context()
        self._heartbeats = heartbeats
        self._shutdown = shutdown
        self._bar = bar
        self._silence_seconds = silence_seconds
        self._done = 0
        self._is_parked = False
        self._alive = time.monotonic()
        self._verdict: ModnormError | None = None

    def __enter__(self) -> Self:
        self._heartbeats.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.remove(self)

    def progress(self, done: int) -> None:
        """Note progress; raise if the work has to stop.

        Raises:
            CancelledError: the work is not wanted any more.
            StaleLeaseError: the lease is lost.
            HandedBackError: the grace period is over.
        """
        self._done = done
        self._alive = time.monotonic()
        if self._verdict is not None:
            raise self._verdict
        if self._shutdown.overdue:
            raise HandedBackError

    @property
    def is_over(self) -> bool:
        """Whether the aggregator ended it; `progress` raises the reason."""
        return self._verdict is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping, and finishes only what it has begun."""
        return self._shutdown.requested.is_set()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Expect no progress inside the context, in which the job is parked.

        The aggregator hears of both ends. If a worker dies, only the job at the engine has had an
        attempt. At the end, the answer is awaited: it may raise the bar or cancel the work.
        """
        self._alive, self._is_parked = float("inf"), True
        self._heartbeats.hasten()
        try:
            yield
            self._is_parked = False
            if self._verdict is None:
                self._heartbeats.send([self])
        finally:
            self._alive = time.monotonic()

    def lasts(self) -> bool:
        """Tell whether to extend it: the work is wanted and shows progress."""
        if self._verdict is not None:
            return False
        if time.monotonic() - self._alive > self._silence_seconds:
            self._log(logging.ERROR, "no progress, letting the lease go")
            return False
        return True

    def beat(self) -> messages.Call:
        """Return the heartbeat that is due now, in the trace of the job."""
        experiment_id, candidate = self._bar.about if self._bar else ("", 0)
        heartbeat = messages.HeartbeatRequest(
            lease=self.lease,
            answers_done=self._done,
            answers_total=self.total,
            experiment_id=experiment_id,
            candidate=candidate,
            resting=self._is_parked,
        )
        # A copy, since a context that is entered cannot be entered again.
        return self._context.copy().run(add_trace_context, messages.Call(heartbeat=heartbeat))

    def hear(self, answer: messages.HeartbeatResponse | ModnormError) -> None:
        """Take in the answer to a heartbeat, or its error."""
        match answer:
            case StaleLeaseError():
                self._verdict = answer
            case NotFoundError():
                # The job is gone, which is not the engine's fault.
                self._verdict = StaleLeaseError(answer.message)
            case ModnormError():
                # A failed call says nothing about the lease.
                self._log(logging.WARNING, "heartbeat failed: %s", answer)
            case _:
                if answer.cancel:
                    self._verdict = CancelledError("the work is not wanted any more")
                if self._bar and answer.HasField("bar"):
                    self._bar.rise(answer.bar)

    def _log(self, level: int, message: str, *values: object) -> None:
        """Log in the job's context, as the thread of heartbeats has none."""
        names = {"job": self.lease.job_id, "token": self.lease.token}
        self._context.copy().run(logger.log, level, message, *values, extra=names)
