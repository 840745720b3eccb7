"""The lease of a job, kept alive while the job is worked on."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from types import TracebackType
from typing import Self

from modnorm.errors import CancelledError, ModnormError, NotFoundError, StaleLeaseError
from modnorm.v1 import evaluation_pb2 as messages
from services.evaluator.candidate_bar import CandidateBar
from services.evaluator.heartbeats import Heartbeats
from services.evaluator.shutdown import Shutdown
from services.evaluator.watchdog import LOAD_FACTOR

LEAST_SILENCE = 1_800.0
"""Least seconds without progress until a lease is let go: loading a large model takes minutes."""
_MARGIN = 60.0
"""Seconds before that in which the watchdog ends a worker that hangs, and fails its job."""

logger = logging.getLogger(__name__)


def longest_silence(stall_seconds: float) -> float:
    """Return for how many seconds a lease is kept without progress.

    Args:
        stall_seconds: Of the worker's settings; a model may take `LOAD_FACTOR` times as long.
    """
    return max(LEAST_SILENCE, LOAD_FACTOR * stall_seconds + _MARGIN)


class HandedBackError(Exception):
    """The worker cannot go on with the job, which is not at fault."""

    def __init__(self, reason: str = "the worker is stopping") -> None:
        super().__init__(reason)


class GivenUpError(HandedBackError):
    """Raised in all parked jobs at once; the raiser releases their leases in one call."""


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
        self.context = copy_context()
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

    def beat(self) -> messages.HeartbeatRequest:
        """Return the heartbeat that is due now."""
        experiment_id, candidate = self._bar.about if self._bar else ("", 0)
        return messages.HeartbeatRequest(
            lease=self.lease,
            answers_done=self._done,
            answers_total=self.total,
            experiment_id=experiment_id,
            candidate=candidate,
            resting=self._is_parked,
        )

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
        # A copy, since a context that is entered cannot be entered again.
        self.context.copy().run(logger.log, level, message, *values, extra=names)
