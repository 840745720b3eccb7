"""Leases of jobs, extended by heartbeats until the jobs end."""

import logging
import threading
import time
from collections.abc import Sequence
from contextvars import copy_context
from typing import Self

from modnorm.errors import CancelledError, ModnormError, StaleLeaseError
from modnorm.services.common.worker.aggregator_calls import AggregatorCalls
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.v1 import evaluation_pb2 as messages

MIN_SILENCE_SECONDS = 1_800.0
"""Seconds for which every lease is kept without progress: loading a large model takes minutes."""

logger = logging.getLogger(__name__)


class ReleasedError(Exception):
    """The worker releases the job unfinished; the job is not at fault."""

    def __init__(self, reason: str = "the worker is stopping") -> None:
        super().__init__(reason)


class Heartbeats:
    """Extends all leases of a worker by one call; its thread runs while there are leases.

    Each call waits for the response to the one before, so that the aggregator receives changes
    in order.

    Args:
        client: Sends heartbeats.
        seconds: Longest pause between heartbeats; a third of the shortest lease if that is less.
    """

    def __init__(self, client: AggregatorCalls, seconds: float) -> None:
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
        """Extend leases now, after any heartbeat in flight; pass each state to its lease."""
        with self._sending:
            try:
                states = self._client.heartbeat([lease.progress_now() for lease in leases])
            except ModnormError as error:
                for lease in leases:
                    # The lease may still hold.
                    lease.log(logging.WARNING, "heartbeat failed: %s", error)
                return
            for lease, state in zip(leases, states, strict=True):
                lease.handle(state)

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

    Subclasses add the progress of their kind of job to the heartbeats.

    Args:
        heartbeats: Sends the heartbeats.
        lease: The lease.
        shutdown: The job is released at the end of its grace period.
        silence_seconds: How long the lease is kept without progress.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        lease: messages.Lease,
        shutdown: Shutdown,
        *,
        silence_seconds: float = MIN_SILENCE_SECONDS,
    ) -> None:
        self.lease = lease
        self._context = copy_context()
        self._heartbeats = heartbeats
        self._shutdown = shutdown
        self._silence_seconds = silence_seconds
        self._last_progress = time.monotonic()
        self._end: ModnormError | None = None
        """Why the aggregator ended the lease."""

    def __enter__(self) -> Self:
        self._heartbeats.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._heartbeats.remove(self)

    def check(self) -> None:
        """Record a sign of progress; raise if the work has to stop, as `require_wanted` does."""
        self._last_progress = time.monotonic()
        self.require_wanted()

    def require_wanted(self) -> None:
        """Raise if the work has to stop.

        Raises:
            CancelledError: the experiment no longer needs the job.
            StaleLeaseError: the lease is lost.
            ReleasedError: the grace period has ended.
        """
        if self._end is not None:
            raise self._end
        if self._shutdown.is_overdue:
            raise ReleasedError

    @property
    def is_ended(self) -> bool:
        """Whether the aggregator ended the lease; `progress` raises the reason."""
        return self._end is not None

    def is_wanted(self) -> bool:
        """Return whether to extend the lease: the aggregator keeps it and the job progresses."""
        if self._end is not None:
            return False
        if time.monotonic() - self._last_progress > self._silence_seconds:
            self.log(logging.ERROR, "no progress, the lease is not extended")
            return False
        return True

    def progress_now(self) -> messages.LeaseProgress:
        """Return the lease with the present progress of its job."""
        return messages.LeaseProgress(lease=self.lease)

    def handle(self, state: messages.LeaseState) -> None:
        """Apply the state that the aggregator returned for this lease."""
        if state.lost:
            self._end = StaleLeaseError(state.lost)
        elif state.cancel:
            self._end = CancelledError("the experiment no longer needs the job")

    def log(self, level: int, message: str, *values: object) -> None:
        """Log in the context of the job, which the heartbeat thread lacks."""
        names = {"job": self.lease.job_id, "token": self.lease.token}
        self._context.copy().run(logger.log, level, message, *values, extra=names)
