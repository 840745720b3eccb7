"""The lease of a candidate's job: progress in rows, a threshold from responses, parking."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from modnorm.engines.start_stage import STAGE
from modnorm.v1 import evaluation_pb2 as messages
from services.common.worker.lease import (
    MIN_SILENCE_SECONDS,
    Heartbeats,
    HeldLease,
    ReleasedError,
)
from services.common.worker.shutdown import Shutdown
from services.evaluator.candidate_threshold import CandidateThreshold
from services.evaluator.watchdog import LOAD_FACTOR

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
        self._threshold = threshold
        self._done = 0
        self._is_parked = False

    def progress(self, done: int) -> None:
        """Record answered rows; raise if the work has to stop, as `check` does."""
        self._done = done
        self.check()

    def send_soon(self) -> None:
        """Make the next heartbeat due now; return without a wait for it."""
        self._heartbeats.send_soon()

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
        self.send_soon()
        try:
            yield
            self._is_parked = False
            if not self.is_ended:
                self._heartbeats.send([self])
        finally:
            self._last_progress = time.monotonic()

    @override
    def _request(self) -> messages.HeartbeatRequest:
        experiment_id, candidate = self._threshold.about if self._threshold else ("", 0)
        return messages.HeartbeatRequest(
            lease=self.lease,
            answers_done=self._done,
            answers_total=self.total,
            experiment_id=experiment_id,
            candidate=candidate,
            parked=self._is_parked,
            engine_stage=STAGE.text,
        )

    @override
    def _read(self, response: messages.HeartbeatResponse) -> None:
        if self._threshold and response.HasField("threshold"):
            self._threshold.raise_to(response.threshold)
