"""Leases of jobs, extended by heartbeats until the jobs end."""

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
from services.evaluator.candidate_threshold import CandidateThreshold
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import LOAD_FACTOR

MIN_SILENCE_SECONDS = 1_800.0
"""Seconds for which every lease is kept without progress: loading a large model takes minutes."""
_MARGIN = 60.0
"""Seconds before that in which the watchdog can end a hanging worker and fail its job."""

logger = logging.getLogger(__name__)


def longest_silence(stall_seconds: float) -> float:
    """Return for how many seconds a lease is kept without progress, while a model may load."""
    return max(MIN_SILENCE_SECONDS, LOAD_FACTOR * stall_seconds + _MARGIN)


class ReleasedError(Exception):
    """The worker releases the job unfinished; the job is not at fault."""

    def __init__(self, reason: str = "the worker is stopping") -> None:
        super().__init__(reason)


class AbandonedError(ReleasedError):
    """Raised in all parked jobs at once; the raiser releases their leases in one call."""


class Heartbeats:
    """Extends all leases of a worker by one message; its thread runs while there are leases.

    Each message waits for the response to the one before, so that the aggregator receives changes
    in order.

    Args:
        client: Sends heartbeats.
        seconds: Longest pause between heartbeats; a third of the shortest lease if that is less.
    """

    def __init__(self, client: AggregatorClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._leases: list[HeldLease] = []
        self._changed = threading.Condition()
        self._runs = False
        self._is_urgent = False
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
        """Stop to extend a lease. The aggregator's fencing refuses a heartbeat in flight."""
        with self._changed:
            if lease in self._leases:
                self._leases.remove(lease)
                self._changed.notify()

    def send_soon(self) -> None:
        """Make the next heartbeat due now; return without a wait for it."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify()

    def send(self, leases: Sequence["HeldLease"]) -> None:
        """Extend leases now, after any heartbeat in flight; pass each response to its lease."""
        with self._sending:
            calls = [lease.make_heartbeat() for lease in leases]
            for lease, response in zip(leases, self._client.heartbeats(calls), strict=True):
                lease.handle(response)

    def _run(self) -> None:
        while leases := self._due():
            try:
                self.send(leases)
            except Exception:
                # Without this thread every lease would expire.
                logger.exception("no heartbeat could be sent")

    def _due(self) -> Sequence["HeldLease"]:
        """Wait until heartbeats are due; return none once no lease is left."""
        with self._changed:
            before = time.monotonic()
            while self._leases:
                left = before + self._interval() - time.monotonic()
                if left > 0 and not self._is_urgent:
                    self._changed.wait(left)
                    continue
                self._is_urgent = False
                self._leases = [lease for lease in self._leases if lease.is_wanted()]
                if self._leases:
                    return tuple(self._leases)
            self._runs = False
            return ()

    def _interval(self) -> float:
        return min(self._seconds, *(lease.lease.seconds / 3 for lease in self._leases))


class HeldLease:
    """Context in which heartbeats extend a lease; their responses may end the work.

    Args:
        heartbeats: Sends the heartbeats.
        lease: The lease.
        shutdown: The job is released at the end of its grace period.
        threshold: Raised by the responses to heartbeats.
        silence_seconds: How long the lease is kept without progress.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        lease: messages.Lease,
        shutdown: Shutdown,
        *,
        threshold: CandidateThreshold | None = None,
        silence_seconds: float = MIN_SILENCE_SECONDS,
    ) -> None:
        self.lease = lease
        self.total = 0
        """Number of rows to answer, for the progress in heartbeats."""
        self._context = copy_context()
        self._heartbeats = heartbeats
        self._shutdown = shutdown
        self._threshold = threshold
        self._silence_seconds = silence_seconds
        self._done = 0
        self._is_parked = False
        self._last_progress = time.monotonic()
        self._end: ModnormError | None = None
        """Why the aggregator ended the lease."""

    def __enter__(self) -> Self:
        self._heartbeats.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.remove(self)

    def progress(self, done: int) -> None:
        """Record progress; raise if the work has to stop.

        Raises:
            CancelledError: the experiment no longer needs the job.
            StaleLeaseError: the lease is lost.
            ReleasedError: the grace period has ended.
        """
        self._done = done
        self._last_progress = time.monotonic()
        if self._end is not None:
            raise self._end
        if self._shutdown.is_overdue:
            raise ReleasedError

    @property
    def is_ended(self) -> bool:
        """Whether the aggregator ended the lease; `progress` raises the reason."""
        return self._end is not None

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping and parks no job any more."""
        return self._shutdown.requested.is_set()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Mark the job as parked inside the context, where no progress is expected.

        Heartbeats report the beginning and the end: if the worker dies, only the job at the engine
        loses an attempt. The end waits for the response, which may raise the threshold or cancel.
        """
        self._last_progress, self._is_parked = float("inf"), True
        self._heartbeats.send_soon()
        try:
            yield
            self._is_parked = False
            if self._end is None:
                self._heartbeats.send([self])
        finally:
            self._last_progress = time.monotonic()

    def is_wanted(self) -> bool:
        """Return whether to extend the lease: the aggregator keeps it and the job progresses."""
        if self._end is not None:
            return False
        if time.monotonic() - self._last_progress > self._silence_seconds:
            self._log(logging.ERROR, "no progress, the lease is not extended")
            return False
        return True

    def make_heartbeat(self) -> messages.Call:
        """Return a heartbeat with the present progress, in the trace of the job."""
        experiment_id, candidate = self._threshold.about if self._threshold else ("", 0)
        heartbeat = messages.HeartbeatRequest(
            lease=self.lease,
            answers_done=self._done,
            answers_total=self.total,
            experiment_id=experiment_id,
            candidate=candidate,
            parked=self._is_parked,
        )
        # A context can be entered only once.
        return self._context.copy().run(add_trace_context, messages.Call(heartbeat=heartbeat))

    def handle(self, response: messages.HeartbeatResponse | ModnormError) -> None:
        """Apply the response to a heartbeat, or its error."""
        match response:
            case StaleLeaseError():
                self._end = response
            case NotFoundError():
                # The job was deleted, which is not the engine's fault.
                self._end = StaleLeaseError(response.message)
            case ModnormError():
                # The lease may still hold.
                self._log(logging.WARNING, "heartbeat failed: %s", response)
            case _:
                if response.cancel:
                    self._end = CancelledError("the experiment no longer needs the job")
                if self._threshold and response.HasField("threshold"):
                    self._threshold.raise_to(response.threshold)

    def _log(self, level: int, message: str, *values: object) -> None:
        """Log in the context of the job, which the heartbeat thread lacks."""
        names = {"job": self.lease.job_id, "token": self.lease.token}
        self._context.copy().run(logger.log, level, message, *values, extra=names)
