"""The lease of a candidate's job: progress in rows, a threshold from responses, parking."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import override

from modnorm.engines.settings import STAGE
from modnorm.services.common.worker.lease import (
    MIN_SILENCE_SECONDS,
    Heartbeats,
    HeldLease,
    ReleasedError,
)
from modnorm.services.common.worker.shutdown import Shutdown
from modnorm.services.evaluator.candidate_threshold import CandidateThreshold
from modnorm.services.evaluator.watchdog import LOAD_FACTOR
from modnorm.v1 import evaluation_pb2 as messages

TAIL = 0.9
"""Share of a job's rows after whose answers the worker claims the next job."""
_MARGIN = 60.0
"""Seconds before the longest silence in which the watchdog can end a hanging worker and fail its
job."""


def longest_silence(stall_seconds: float) -> float:
    """Return for how many seconds a lease is kept without progress, while a model may load."""
    return max(MIN_SILENCE_SECONDS, LOAD_FACTOR * stall_seconds + _MARGIN)


class AbandonedError(ReleasedError):
    """Raised in all parked jobs at once; the raiser releases their leases in one call."""


class CandidateLease(HeldLease):
    """Context in which heartbeats extend a candidate's lease; their responses may end the work.

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
        super().__init__(heartbeats, lease, shutdown, silence_seconds=silence_seconds)
        self.total = 0
        """Number of rows to answer, for the progress in heartbeats."""
        self.tail = TAIL
        """Share of the rows whose answers begin the tail."""
        self.on_tail: Callable[[], object] | None = None
        """Called once when the tail begins, to claim the next job."""
        self._threshold = threshold
        self._done = 0
        self._is_parked = False

    def progress(self, done: int) -> None:
        """Record answered rows; raise if the work has to stop, as `check` does."""
        self._done = done
        on_tail = self.on_tail
        if on_tail and self.total and done >= self.tail * self.total:
            self.on_tail = None
            on_tail()
        self.check()

    def waits(self) -> None:
        """Mark a job that waits for the engine, where no progress is expected, until `begins`."""
        self._last_progress, self._is_parked = float("inf"), True

    def begins(self) -> None:
        """Mark the job as at the engine from now on."""
        self._last_progress, self._is_parked = time.monotonic(), False
        self._heartbeats.send_soon()

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping and parks no job any more."""
        return self._shutdown.requested.is_set()

    @contextmanager
    def parked(self) -> Iterator[None]:
        """Mark the job as parked inside the context.

        Heartbeats report the beginning and the end: if the worker dies, only the job at the engine
        loses an attempt.
        """
        self.waits()
        self._heartbeats.send_soon()
        try:
            yield
        finally:
            self.begins()

    @override
    def progress_now(self) -> messages.LeaseProgress:
        return messages.LeaseProgress(
            lease=self.lease,
            answers_done=self._done,
            parked=self._is_parked,
            engine_stage=STAGE.text,
        )

    @override
    def handle(self, state: messages.LeaseState) -> None:
        super().handle(state)
        if self._threshold and state.HasField("threshold"):
            self._threshold.raise_to(state.threshold)
