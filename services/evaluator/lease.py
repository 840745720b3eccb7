"""Leases of jobs, extended by heartbeats until the jobs end."""

import logging
import threading
import time
from collections.abc import Sequence
from contextvars import copy_context

from modnorm.engines.settings import STAGE
from modnorm.errors import CancelledError, ModnormError, StaleLeaseError
from modnorm.services.evaluator.aggregator_client import AggregatorClient
from modnorm.services.evaluator.shutdown import LOAD_FACTOR, Shutdown
from modnorm.v1 import evaluation_pb2 as messages

MIN_SILENCE_SECONDS = 1_800.0
"""Seconds for which every lease is kept without progress: loading a large model takes minutes."""
_MARGIN = 60.0
"""Seconds before the longest silence in which the watchdog can end a hanging worker and fail its
job."""

logger = logging.getLogger(__name__)


def longest_silence(stall_seconds: float) -> float:
    """Return for how many seconds a lease is kept without progress, while a model may load."""
    return max(MIN_SILENCE_SECONDS, LOAD_FACTOR * stall_seconds + _MARGIN)


class ReleasedError(Exception):
    """The worker releases the job unfinished; the job is not at fault."""

    def __init__(self) -> None:
        super().__init__("the worker is stopping")


class Heartbeats:
    """Extends all leases of a worker by one call; its thread runs while there are leases."""

    def __init__(self, client: AggregatorClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._leases: list[CandidateLease] = []
        self._changed = threading.Condition()
        self._runs = False
        self._is_urgent = False

    def add(self, lease: "CandidateLease") -> None:
        """Extend a lease from now on."""
        with self._changed:
            self._leases.append(lease)
            self._changed.notify()
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def remove(self, lease: "CandidateLease") -> None:
        """Stop extending a lease. The aggregator's fencing refuses a heartbeat in flight."""
        with self._changed:
            if lease in self._leases:
                self._leases.remove(lease)
                self._changed.notify()

    def send_soon(self) -> None:
        """Make the next heartbeat due now; return without a wait for it."""
        with self._changed:
            self._is_urgent = True
            self._changed.notify()

    def _run(self) -> None:
        while leases := self._due():
            try:
                self._send(leases)
            except Exception:
                # Without this thread every lease would expire.
                logger.exception("no heartbeat could be sent")

    def _send(self, leases: Sequence["CandidateLease"]) -> None:
        """Extend leases; pass the state of each to it."""
        try:
            states = self._client.heartbeat([lease.progress_now() for lease in leases])
        except ModnormError as error:
            for lease in leases:  # the lease may still hold
                lease.log(logging.WARNING, "heartbeat failed: %s", error)
            return
        for lease, state in zip(leases, states, strict=True):
            lease.handle(state)

    def _due(self) -> Sequence["CandidateLease"]:
        """Wait until heartbeats are due; return none once no lease is left."""
        with self._changed:
            before = time.monotonic()
            while self._leases:
                shortest = min(lease.job.lease.seconds for lease in self._leases)
                left = before + min(self._seconds, shortest / 3) - time.monotonic()
                if left > 0 and not self._is_urgent:
                    self._changed.wait(left)
                    continue
                self._is_urgent = False
                self._leases = [lease for lease in self._leases if lease.is_wanted()]
                if self._leases:
                    return tuple(self._leases)
            self._runs = False
            return ()


class CandidateLease:
    """A leased job, which waits for the engine until `begins`. Heartbeats may end the work."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        job: messages.Job,
        shutdown: Shutdown,
        *,
        silence_seconds: float = MIN_SILENCE_SECONDS,
    ) -> None:
        self.job = job
        self._context = copy_context()
        self._heartbeats = heartbeats
        self._shutdown = shutdown
        self._silence_seconds = silence_seconds
        self._last_progress = float("inf")  # none is expected before `begins`
        self._done = 0
        self._waits = True
        self._end: ModnormError | None = None
        """Why the aggregator ended the lease."""

    def progress(self, done: int) -> None:
        """Record answered rows, a sign of progress; raise if the work has to stop."""
        self._done = done
        self._last_progress = time.monotonic()
        if self._end is not None:
            raise self._end
        if self._shutdown.is_overdue:
            raise ReleasedError

    def begins(self) -> None:
        """Mark the job as at the engine from now on."""
        self._last_progress, self._waits = time.monotonic(), False
        self._heartbeats.send_soon()

    def is_wanted(self) -> bool:
        """Return whether to extend the lease: the aggregator keeps it and the job progresses."""
        if self._end is not None:
            return False
        if time.monotonic() - self._last_progress > self._silence_seconds:
            self.log(logging.ERROR, "no progress, the lease is not extended")
            return False
        return True

    def progress_now(self) -> messages.LeaseProgress:
        return messages.LeaseProgress(
            lease=self.job.lease,
            answers_done=self._done,
            waits=self._waits,
            engine_stage=STAGE.text,
        )

    def handle(self, state: messages.LeaseState) -> None:
        """Apply the state that the aggregator returned for this lease."""
        if state.lost:
            self._end = StaleLeaseError(state.lost)
        elif state.cancel:
            self._end = CancelledError("the experiment no longer needs the job")

    def log(self, level: int, message: str, *values: object) -> None:
        """Log in the context of the job, which the heartbeat thread lacks."""
        names = {"job": self.job.lease.job_id, "token": self.job.lease.token}
        self._context.copy().run(logger.log, level, message, *values, extra=names)
